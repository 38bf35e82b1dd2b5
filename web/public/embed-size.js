// For the page around a frame of embed.html: gives each such frame the height that it asks for.
addEventListener('message', ({ source, data }) => {
  const size = data?.oometer;
  if (size?.type !== 'size' || !(size.height > 0)) return;
  for (const frame of document.querySelectorAll('iframe')) {
    if (frame.contentWindow === source) frame.height = String(Math.min(Math.ceil(size.height), 10_000));
  }
});
