// The widget alone in a page, for an iframe: embed.html#v1?mbs=16&view=bar. It tells the page around it how high it is.
import './widget';
import type { OometerWidget, WidgetView } from './widget';

const VIEWS: readonly string[] = ['summary', 'bar', 'timeline', 'full'] satisfies WidgetView[];

/** `view` and `theme` are the frame's own; everything else is a permalink. */
function split(fragment: string): { link: string; view: WidgetView; theme: string } {
  const [head = '', body = ''] = fragment.split('?', 2);
  const parts = body.split('&').filter((part) => part !== '');
  const own = (key: string): string => parts.find((part) => part.startsWith(`${key}=`))?.slice(key.length + 1) ?? '';
  const rest = parts.filter((part) => !/^(view|theme)=/.test(part));
  const view = own('view');
  return {
    link: rest.length > 0 ? `${head}?${rest.join('&')}` : head,
    view: (VIEWS.includes(view) ? view : 'bar') as WidgetView,
    theme: own('theme'),
  };
}

function show(widget: OometerWidget): void {
  const { link, view, theme } = split(location.hash);
  widget.job = link;
  widget.view = view;
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
}

const widget = document.querySelector<OometerWidget>('oometer-widget');
if (widget) {
  show(widget);
  // Never the other way round: a frame that writes its address is brought back by the browser as something else.
  addEventListener('hashchange', () => {
    show(widget);
  });
  new ResizeObserver(() => {
    const height = Math.ceil(widget.getBoundingClientRect().height);
    // The page around is not known, and a height is no secret.
    parent.postMessage({ oometer: { type: 'size', height } }, '*');
  }).observe(widget);
}
