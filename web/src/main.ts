import './components/app';

// For a later visit without a network. A browser may refuse; the page needs none of it.
addEventListener('load', () => {
  if ('serviceWorker' in navigator) navigator.serviceWorker.register('./sw.js').catch(() => undefined);
});
