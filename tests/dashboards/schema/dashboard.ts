// The types of our dashboards: Grafana's own, with the options and fields of each kind of panel that we use.
import type { Dashboard, DataSourceRef, FieldConfig, Panel, RowPanel } from '@grafana/schema';
import type * as Heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as Stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as Table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as TimeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// A type as JSON writes it: an enum of strings is one of its strings.
type Plain<T> = unknown extends T
  ? T
  : T extends string
    ? `${T}`
    : T extends number | boolean | null | undefined
      ? T
      : T extends Array<infer U>
        ? Array<Plain<U>>
        : { [K in keyof T]: Plain<T[K]> };

// The data source's own query is in no package: these are the members that it reads.
interface Target {
  refId: string;
  expr: string;
  legendFormat: string;
  datasource: DataSourceRef;
  format: 'time_series' | 'table' | 'heatmap';
  instant: boolean;
  range: boolean;
  exemplar: boolean;
  editorMode: 'code';
}

type Fields<Custom> = {
  defaults: Omit<Plain<FieldConfig>, 'custom'> & { custom?: Plain<Custom> };
  overrides: NonNullable<Plain<Panel['fieldConfig']>>['overrides'];
};

type Head = Required<Pick<Plain<Panel>, 'id' | 'title' | 'description' | 'gridPos'>> &
  Pick<Plain<Panel>, 'transformations' | 'transparent' | 'repeatDirection'>;

type Queried<Type extends string, Options, Custom = Record<string, never>> = Head & {
  type: Type;
  datasource: DataSourceRef;
  fieldConfig: Fields<Custom>;
  options: Plain<Options>;
  targets: Target[];
};

type OurPanel =
  | Plain<RowPanel>
  | Queried<'timeseries', TimeSeries.Options, TimeSeries.FieldConfig>
  | Queried<'stat', Stat.Options>
  | Queried<'table', Table.Options, Table.FieldConfig>
  | Queried<'heatmap', Heatmap.Options, Heatmap.FieldConfig>;

export type OurDashboard = Omit<Plain<Dashboard>, 'panels'> & { panels: OurPanel[] };
