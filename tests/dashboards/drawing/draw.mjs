// node draw.mjs DATA.json OUT_FOLDER: bundles page.tsx, and takes a picture of each dashboard in DATA.json with Chromium.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';

const [dataFile, out] = process.argv.slice(2);
const bundle = join(out, 'page.js');
await build({
  entryPoints: [join(import.meta.dirname, 'page.tsx')],
  bundle: true,
  outfile: bundle,
  format: 'iife',
  jsx: 'automatic',
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.svg': 'dataurl', '.png': 'dataurl', '.ttf': 'dataurl', '.woff': 'dataurl', '.woff2': 'dataurl' },
  logLevel: 'error',
});

const dashboards = JSON.parse(await readFile(dataFile, 'utf8'));
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
  ],
});
let broken = false;
for (const dashboard of dashboards) {
  const html = join(out, `${dashboard.name}.html`);
  const data = JSON.stringify(dashboard).replaceAll('<', '\\u003c');
  await writeFile(
    html,
    `<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css"><style>button{color:inherit;background:none;border:0}a{color:#6e9fff}</style><body><div id="root"></div><script>window.DASHBOARD=${data}</script><script src="page.js"></script>`
  );
  const page = await browser.newPage({ viewport: { width: 1600, height: 3200 } });
  page.on('pageerror', (error) => {
    broken = true;
    console.error(`${dashboard.name}: ${error.message}`);
  });
  await page.goto(pathToFileURL(html).href);
  await page.waitForSelector('[data-drawn]', { timeout: 60_000 });
  await page.waitForTimeout(1500);
  await page.locator('[data-drawn]').screenshot({ path: join(out, `${dashboard.name}.png`) });
  const failed = await page.locator('[data-failed]').allInnerTexts();
  for (const text of failed) {
    broken = true;
    console.error(`${dashboard.name}: ${text}`);
  }
  await page.close();
}
await browser.close();
process.exitCode = broken ? 1 : 0;
