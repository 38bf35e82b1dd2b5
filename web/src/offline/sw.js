// The page without a network, after a first visit. scripts/offline.js fills in what to keep.
//
// Files whose names change with their content are taken from the cache; pages from the network while there is one, so
// that a new version is seen at the next visit. Where a browser refuses service workers, the page works without.
const NAME = 'oometer-__VERSION__';
const FILES = ['__FILES__'];

self.addEventListener('install', (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES)));
  self.skipWaiting();
});

self.addEventListener('activate', (event) => {
  const old = (names) => names.filter((name) => name.startsWith('oometer-') && name !== NAME);
  event.waitUntil(caches.keys().then((names) => Promise.all(old(names).map((name) => caches.delete(name)))));
});

self.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET' || new URL(request.url).origin !== location.origin) return;
  const kept = () => caches.match(request, { ignoreSearch: true });
  const fetched = async () => {
    const response = await fetch(request);
    if (response.ok && /\.wasm$/.test(request.url)) await (await caches.open(NAME)).put(request, response.clone());
    return response;
  };
  event.respondWith(
    request.mode === 'navigate'
      ? fetch(request).catch(async () => (await kept()) ?? Response.error())
      : kept().then((response) => response ?? fetched()),
  );
});
