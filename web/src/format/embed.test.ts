import { expect, it } from 'vitest';
import { frameSnippet, widgetSnippet } from './embed';

const site = 'https://example.org/tools/';

it('writes what another page needs', () => {
  expect(widgetSnippet(site, '#v1?mbs=16&seq=1024')).toBe(
    '<script type="module" src="https://example.org/tools/widget.js"></script>\n' +
      '<oometer-widget view="bar" job="#v1?mbs=16&amp;seq=1024"></oometer-widget>',
  );
  expect(frameSnippet(site, '#v1?mbs=16')).toContain(
    'src="https://example.org/tools/embed.html#v1?mbs=16&amp;view=bar"',
  );
  expect(frameSnippet(site, '')).toContain('embed.html#v1?view=bar"');
  expect(widgetSnippet(site, '')).toContain('job="#v1"');
});
