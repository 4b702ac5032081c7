// One dashboard with Grafana's own components: time series, stats and tables; heat maps are drawn here.
import { Component, useEffect, useState } from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import {
  createTheme,
  dateTime,
  FieldType,
  getDisplayProcessor,
  getFieldDisplayName,
  reduceField,
  standardTransformers,
  standardTransformersRegistry,
  ThemeContext,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { BigValue, PanelChrome, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

const theme = createTheme({ colors: { mode: 'dark' } });
const dashboard = (window as any).DASHBOARD;
const WIDTH = 1584;
const CELL = WIDTH / 24;
const UNIT = 38;

// Some are listed twice, under an old name and a new one.
const transformers = new Map<string, any>(Object.values(standardTransformers).map((one: any) => [one.id, one]));
standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((one) => ({ ...one, name: one.id, transformation: async () => one, imageDark: '', imageLight: '' }))
);

// What the kinds of panels set where the dashboard sets nothing.
const LINES = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  barAlignment: 0,
  axisPlacement: 'auto',
  axisLabel: '',
  pointSize: 5,
  showPoints: 'auto',
  scaleDistribution: { type: 'linear' },
  hideFrom: { tooltip: false, viz: false, legend: false },
  thresholdsStyle: { mode: 'off' },
};

// A field with the panel's defaults and overrides: what Grafana's applyFieldOverrides does for the members that we use.
function configured(panel: any, field: any, frame: any, number: number): any {
  const { defaults, overrides } = panel.fieldConfig;
  const config: any = { ...defaults, ...field.config, custom: { ...(panel.type === 'timeseries' ? LINES : {}), ...defaults.custom } };
  config.color ??= { mode: panel.type === 'timeseries' ? 'palette-classic' : 'thresholds' };
  config.thresholds ??= { mode: 'absolute', steps: [{ color: 'text', value: null }] };
  const name = getFieldDisplayName({ ...field, config }, frame);
  for (const override of overrides) {
    if (override.matcher.options !== name) {
      continue;
    }
    for (const { id, value } of override.properties) {
      if (id.startsWith('custom.')) {
        config.custom[id.slice(7)] = value;
      } else {
        config[id] = value;
      }
    }
  }
  const whole = (thresholds: any) => ({
    ...thresholds,
    steps: thresholds.steps.map((step: any) => ({ ...step, value: step.value ?? -Infinity })),
  });
  const made = { ...field, config: { ...config, thresholds: whole(config.thresholds) }, state: { ...field.state, seriesIndex: number } };
  made.display = getDisplayProcessor({ field: made, theme, timeZone: 'utc' });
  made.getLinks = () => (made.config.links ?? []).map((link: any) => ({ href: link.url, title: link.title, target: '_self', origin: made }));
  return made;
}

function legendOf(legend: string, labels: Record<string, string>): string {
  return legend.replace(/\{\{(\w+)\}\}/g, (_, label) => labels[label] ?? '');
}

function seriesFrames(panel: any): any[] {
  let number = 0;
  return panel.targets.flatMap((target: any) =>
    target.result.map((series: any) => {
      const points: Array<[number, string]> = series.values ?? [series.value];
      const frame = toDataFrame({
        refId: target.refId,
        fields: [
          { name: 'Time', type: FieldType.time, values: points.map(([at]) => at * 1000), config: { interval: 5000 } },
          {
            name: 'Value',
            type: FieldType.number,
            labels: series.metric,
            values: points.map(([, value]) => Number(value)),
            config: { displayNameFromDS: legendOf(target.legendFormat, series.metric) },
          },
        ],
      });
      frame.fields[1] = configured(panel, frame.fields[1], frame, number++);
      return frame;
    })
  );
}

// As the data source does for the format `table`: a field for each label, then the value.
function tableFrames(panel: any): any[] {
  return panel.targets.map((target: any) => {
    const labels = [...new Set(target.result.flatMap((series: any) => Object.keys(series.metric)))].sort() as string[];
    return toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: target.result.map((series: any) => series.value[0] * 1000) },
        ...labels.map((label) => ({
          name: label,
          type: FieldType.string,
          values: target.result.map((series: any) => series.metric[label] ?? ''),
        })),
        {
          name: panel.targets.length > 1 ? `Value #${target.refId}` : 'Value',
          type: FieldType.number,
          values: target.result.map((series: any) => Number(series.value[1])),
        },
      ],
    });
  });
}

function NoValue({ panel }: any) {
  return <div style={{ display: 'grid', placeItems: 'center', height: '100%', color: theme.colors.text.secondary }}>{panel.fieldConfig?.defaults.noValue ?? 'No data'}</div>;
}

function Lines({ panel, width, height }: any) {
  const frames = seriesFrames(panel);
  if (!frames.length) {
    return <NoValue panel={panel} />;
  }
  const range = { from: dateTime(dashboard.start * 1000), to: dateTime(dashboard.end * 1000) };
  return (
    <TimeSeries
      frames={frames}
      width={width}
      height={height}
      timeRange={{ ...range, raw: range }}
      timeZone="utc"
      legend={panel.options.legend}
      options={panel.options}
    />
  );
}

function Stats({ panel, width, height }: any) {
  const frames = seriesFrames(panel);
  if (!frames.length) {
    return <NoValue panel={panel} />;
  }
  const each = width / frames.length;
  return (
    <div style={{ display: 'flex' }}>
      {frames.map((frame, at) => {
        const field = frame.fields[1];
        const shown = field.display(reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull);
        const value = { ...shown, title: getFieldDisplayName(field, frame) };
        return (
          <BigValue key={at} theme={theme} value={value} width={each} height={height} colorMode={panel.options.colorMode} graphMode={panel.options.graphMode} textMode={panel.options.textMode} />
        );
      })}
    </div>
  );
}

function Rows({ panel, width, height }: any) {
  const [frame, setFrame] = useState<any>(null);
  useEffect(() => {
    const done = transformDataFrame(panel.transformations, tableFrames(panel)).subscribe((frames: any[]) => setFrame(frames[0] ?? { fields: [], length: 0 }));
    return () => done.unsubscribe();
  }, []);
  if (frame === null) {
    return null;
  }
  if (!frame.length) {
    return <NoValue panel={panel} />;
  }
  const fields = frame.fields.map((field: any, at: number) => configured(panel, { ...field, config: { ...field.config } }, frame, at));
  return <TableNG data={{ ...frame, fields }} width={width} height={height} sortBy={panel.options.sortBy} noValue={panel.fieldConfig.defaults.noValue} />;
}

// Grafana's packages have no heat map: each field is the growth of one bucket in one step, the darker the more.
function Heat({ panel, width, height }: any) {
  const bounds = panel.targets[0].result
    .map((series: any) => ({ bound: Number(series.metric.le.replace('+Inf', 'Infinity')), at: new Map(series.values) }))
    .sort((one: any, other: any) => one.bound - other.bound);
  if (!bounds.length) {
    return <NoValue panel={panel} />;
  }
  const fields = bounds.flatMap(({ at }: any, row: number) =>
    [...at].map(([time, value]: any) => ({ row, time, more: Number(value) - Number(row ? (bounds[row - 1].at.get(time) ?? 0) : 0) }))
  ).filter(({ more }: any) => more > 1e-9);
  const most = Math.max(...fields.map(({ more }: any) => more));
  const [left, tall] = [56, height / bounds.length];
  const wide = ((width - left) * 5) / (dashboard.end - dashboard.start);
  return (
    <svg width={width} height={height}>
      {bounds.map(({ bound }: any, row: number) => row % 2 ? null : (
        <text key={row} x={left - 6} y={height - row * tall - 2} textAnchor="end" fontSize={10} fill={theme.colors.text.secondary}>{bound === Infinity ? 'more' : `${bound} s`}</text>
      ))}
      {fields.map(({ row, time, more }: any, at: number) => (
        <rect key={at} x={left + ((time - dashboard.start) / 5) * wide} y={height - (row + 1) * tall} width={wide} height={tall - 1} fill="#ff780a" fillOpacity={0.15 + 0.85 * Math.sqrt(more / most)} />
      ))}
    </svg>
  );
}

function Body(props: any) {
  switch (props.panel.type) {
    case 'timeseries':
      return <Lines {...props} />;
    case 'stat':
      return <Stats {...props} />;
    case 'table':
      return <Rows {...props} />;
    case 'heatmap':
      return <Heat {...props} />;
  }
  return <NoValue panel={{ fieldConfig: { defaults: { noValue: `${props.panel.type}: ${props.panel.targets[0].result.length} buckets, not drawn` } } }} />;
}

class Boundary extends Component<{ title: string; children: ReactNode }, { error: Error | null }> {
  state = { error: null as Error | null };
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  render() {
    return this.state.error ? <div data-failed>{`${this.props.title}: ${this.state.error.message}`}</div> : this.props.children;
  }
}

function Place({ panel }: any) {
  const { x, y, w, h } = panel.gridPos;
  const width = w * CELL - 8;
  const height = h * UNIT - 8;
  const style = { position: 'absolute' as const, left: x * CELL + 8, top: y * UNIT + 8, width, height };
  if (panel.type === 'row') {
    return <div style={{ ...style, color: theme.colors.text.primary, fontWeight: 500 }}>{panel.title}</div>;
  }
  return (
    <div style={style}>
      <Boundary title={panel.title}>
        <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
          {(innerWidth: number, innerHeight: number) => <Body panel={panel} width={innerWidth} height={innerHeight} />}
        </PanelChrome>
      </Boundary>
    </div>
  );
}

function Page() {
  const bottom = Math.max(...dashboard.panels.map((panel: any) => panel.gridPos.y + panel.gridPos.h));
  return (
    <ThemeContext.Provider value={theme}>
      <div data-drawn style={{ position: 'relative', height: bottom * UNIT + 16, width: WIDTH + 16, font: '14px Inter, Helvetica, Arial, sans-serif', color: theme.colors.text.primary }}>
        {dashboard.panels.map((panel: any) => (
          <Place key={panel.id} panel={panel} />
        ))}
      </div>
    </ThemeContext.Provider>
  );
}

document.body.style.cssText = `margin: 0; background: ${theme.colors.background.canvas}`;
createRoot(document.getElementById('root')!).render(<Page />);
