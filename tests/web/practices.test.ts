// What Lighthouse looks at, on every page of the site: accessibility, best practices, how it is found.
import { describe, expect, it } from 'vitest';
import { accessibility, open, page, requests, site, useBrowser } from './browser';

useBrowser();

const PAGES = [
  ['the calculator', '', 'oometer-verdict h2'],
  ['how it is calculated', 'method.html', 'h1'],
  ['how right it is', 'accuracy.html', 'h1'],
  ['the comparison with a run', 'compare.html', 'h1'],
  ['the frame', 'embed.html#v1?view=full', 'oometer-verdict h2'],
  ['the demo', 'demo.html', 'oometer-verdict h2'],
] as const;

/** Every layout, and both sets of colours. */
const SIZES = [
  ['a phone', { width: 360, height: 740 }],
  ['a tablet in the dark', { width: 768, height: 1024, colorScheme: 'dark' }],
  ['a desk', { width: 1440, height: 900 }],
] as const;

/** Everything that Chromium's “Issues” would list while `visit` runs. */
async function issuesOf(visit: () => Promise<void>): Promise<string[]> {
  const found: string[] = [];
  const session = await page.context().newCDPSession(page);
  session.on('Audits.issueAdded', ({ issue }) => found.push(JSON.stringify(issue)));
  session.on('Log.entryAdded', ({ entry }) => {
    if (entry.level !== 'info' && entry.level !== 'verbose') found.push(entry.text);
  });
  await session.send('Audits.enable');
  await session.send('Log.enable');
  await visit();
  return found;
}

describe.each(PAGES)('%s', (_name, address, ready) => {
  const visit = async (): Promise<void> => {
    await page.goto(site.address + address);
    await page.locator(ready).first().waitFor();
  };

  it('is a proper document that search engines and screen readers can name', async () => {
    await visit();
    const document_ = await page.evaluate(() => ({
      doctype: document.doctype?.name,
      mode: document.compatMode,
      charset: document.characterSet,
      language: document.documentElement.lang,
      title: document.title,
      description: document.querySelector<HTMLMetaElement>('meta[name=description]')?.content ?? '',
      viewport: document.querySelector<HTMLMetaElement>('meta[name=viewport]')?.content ?? '',
    }));
    expect(document_).toMatchObject({ doctype: 'html', mode: 'CSS1Compat', charset: 'UTF-8', language: 'en' });
    expect(document_.title.length).toBeGreaterThan(5);
    expect(document_.description.length).toBeGreaterThan(40);
    expect(document_.viewport).toContain('width=device-width');
    expect(document_.viewport).not.toMatch(/user-scalable|maximum-scale/);
    const source = await (await page.request.get(site.address + address.replace(/#.*/, ''))).text();
    expect(source.slice(0, 1024)).toMatch(/<meta charset="utf-8"/i);
    expect(source).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=/i); // nothing inline: the CSP would refuse it
  });

  it('gives the browser nothing to complain about, and asks nobody else', async () => {
    expect(await issuesOf(visit)).toEqual([]);
    expect(requests.every((request) => request.startsWith(site.address))).toBe(true);
    const wrong = await page.evaluate(() => {
      const all = (root: Document | ShadowRoot): Element[] =>
        [...root.querySelectorAll('*')].flatMap((element) => [
          element,
          ...(element.shadowRoot ? all(element.shadowRoot) : []),
        ]);
      return all(document)
        .filter(
          (element) =>
            (element.localName === 'img' && !element.hasAttribute('alt')) ||
            (element.matches('a[target=_blank]') && !element.matches('[rel~=noopener]')) ||
            (element.matches('iframe') && !element.hasAttribute('title')),
        )
        .map((element) => element.outerHTML.slice(0, 160));
    });
    expect(wrong).toEqual([]);
  });

  it.each(SIZES)('fits %s, where everything can be read and hit', async (_size, view) => {
    await open(view);
    await visit();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(view.width);
    expect(await accessibility()).toEqual([]);
  });

  it('is no wider than a desk’s window at 200 %', async () => {
    const view = { width: 720, height: 450, deviceScaleFactor: 2 };
    await open(view);
    await visit();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(view.width);
  });
});
