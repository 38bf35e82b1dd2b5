// What every test in a real browser begins with: the built site, a fresh page, and no complaint at its end.
import { existsSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import axe, { type RunOptions } from 'axe-core';
import { chromium, type Browser, type BrowserContextOptions, type Locator, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { serve, type Site } from './serve';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const pictures = process.env.OOMETER_SCREENSHOTS ?? join(tmpdir(), 'oometer-screenshots');

export interface View {
  width: number;
  height: number;
  colorScheme?: 'light' | 'dark';
}

/** The widths of a phone, a tablet and a desk, and both sets of colours. */
export const VIEWS: View[] = [
  { width: 360, height: 740, colorScheme: 'light' },
  { width: 768, height: 1024, colorScheme: 'dark' },
  { width: 1440, height: 900, colorScheme: 'light' },
];

const DESKTOP: View = { width: 1440, height: 900 };

export let browser: Browser;
export let site: Site;
export let page: Page;
/** Errors and warnings of the page; every test ends with none. */
export let complaints: string[];
export let requests: string[];

/** To be called once by a file of tests. */
export function useBrowser(): void {
  beforeAll(async () => {
    if (!existsSync(join(root, 'dist/index.html'))) throw new Error('dist/ is missing: run ./dev build');
    mkdirSync(pictures, { recursive: true });
    site = await serve(join(root, 'dist'));
    browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
      args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
    });
  });

  afterAll(async () => {
    await browser.close();
    await site.close();
  });

  beforeEach(async () => {
    await open(DESKTOP);
  });

  afterEach(async () => {
    await page.context().close();
    expect(complaints, complaints.join('\n')).toEqual([]);
  });
}

/** Another window instead of the present one. */
export async function open({ width, height, ...options }: View & BrowserContextOptions): Promise<void> {
  const context = await browser.newContext({ viewport: { width, height }, ...options });
  page = await context.newPage();
  complaints = [];
  requests = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => requests.push(request.url()));
}

export async function visit(fragment = ''): Promise<void> {
  await page.goto(site.address + fragment);
  await page.locator('oometer-verdict h2, .notice').first().waitFor();
}

export const headline = (): Promise<string> => page.locator('oometer-verdict h2').innerText();
export const detail = async (): Promise<string> =>
  (await page.locator('oometer-verdict .detail').innerText()).replaceAll('\u00a0', ' ');

/** A number's field: its buttons and its slider bear its name too. */
export const number = (name: string): Locator => page.getByRole('spinbutton', { name, exact: true });

/** Picks from one of the lists that can be searched. */
export async function pick(list: string, entry: string): Promise<void> {
  await page.getByRole('combobox', { name: list }).fill(entry);
  await page.keyboard.press('Enter');
}

/** Drops files anywhere on the page. */
export async function drop(...files: [name: string, text: string][]): Promise<void> {
  await page.evaluate((list) => {
    const data = new DataTransfer();
    for (const [name, text] of list) data.items.add(new File([text], name, { type: 'application/json' }));
    window.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, files);
}

/** The page's own element: the job it shows and the core's answer to it. */
export async function shown(): Promise<{ job: string; report: string }> {
  return page.evaluate(() => {
    const app = document.querySelector<Element & { job: unknown; report: string | null }>('oometer-app');
    return { job: JSON.stringify(app?.job), report: app?.report ?? '' };
  });
}

/** Waits until what stands below the answer, which is drawn after it, is about the same settings. */
export async function drawn(): Promise<void> {
  await page.locator('.details[aria-busy=false]').waitFor();
}

/** Waits until what would help is about them, too. */
export async function settled(): Promise<void> {
  await page.locator('.details[aria-busy=false] oometer-advice section[aria-busy=false]').waitFor();
}

/** Presses a button that copies; what the clipboard holds then. */
export async function copiedFrom(where: Locator, name: string): Promise<string> {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  // It says so for two seconds only.
  await Promise.all([
    where.getByRole('button', { name: 'Copied' }).waitFor(),
    where.getByRole('button', { name }).click(),
  ]);
  return page.evaluate(() => navigator.clipboard.readText());
}

/** What axe finds wrong with the page as it stands. */
export async function accessibility(): Promise<string[]> {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe.source);
  return page.evaluate(async () => {
    const rules = { 'target-size': { enabled: true } }; // WCAG 2.2: not among axe's defaults
    const options: RunOptions = { rules, resultTypes: ['violations'] };
    const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run(options);
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
  });
}

/** The peak that the page shows, in bytes. */
export async function total(): Promise<number> {
  return (JSON.parse((await shown()).report) as { peak: { total: number } }).peak.total;
}

const sweepMap = (): Locator => page.locator('oometer-sweep');

/** Begins to sweep, in so many steps. */
export async function sweepOf(steps: string): Promise<void> {
  await sweepMap().getByLabel('Steps').selectOption(steps);
  await sweepMap().getByRole('button', { name: 'Sweep' }).click();
}

/** Waits for the sweep's end; what is said of it. */
export async function swept(timeout: number): Promise<string> {
  const said = sweepMap().getByRole('status').first();
  await said.filter({ hasText: ' cells in ' }).waitFor({ timeout });
  return said.innerText();
}
