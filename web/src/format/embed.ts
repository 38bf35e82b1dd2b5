// What one pastes into another page to show an answer there.

const attribute = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;');

/** `fragment` is a permalink's, "" for the page's start; `site` is the folder of this page. */
export function widgetSnippet(site: string, fragment: string): string {
  return [
    `<script type="module" src="${attribute(new URL('widget.js', site).href)}"></script>`,
    `<oometer-widget view="bar" job="${attribute(fragment || '#v1')}"></oometer-widget>`,
  ].join('\n');
}

/** For where only a frame is allowed. The script gives it the height that it needs, and may be left out. */
export function frameSnippet(site: string, fragment: string): string {
  const link = fragment === '' ? '#v1?view=bar' : `${fragment}&view=bar`;
  const address = attribute(new URL(`embed.html${link}`, site).href);
  return [
    `<iframe src="${address}" title="Memory of a training run" width="100%" height="200" loading="lazy"></iframe>`,
    `<script type="module" src="${attribute(new URL('embed-size.js', site).href)}"></script>`,
  ].join('\n');
}
