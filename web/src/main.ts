import './components/app';

// For a later visit without a network, once the answer is there. A browser may refuse; the page needs none of it.
document.querySelector('oometer-app')?.addEventListener('ready', () => {
  if ('serviceWorker' in navigator) navigator.serviceWorker.register('./sw.js').catch(() => undefined);
});
