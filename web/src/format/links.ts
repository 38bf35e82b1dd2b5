// Where a number is explained: a place on the method page.

let site = '';

/** The folder of the site; a widget in a foreign page must name it, the page itself stands in it. */
export function setSite(address: string): void {
  site = address;
}

export function inSite(path: string): string {
  return site === '' ? `./${path}` : new URL(path, site).href;
}

/** `topic` is the id of a heading of method.html. */
export function explain(topic: string): string {
  return inSite(`method.html#${topic}`);
}
