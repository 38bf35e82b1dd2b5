// Where a number is explained: a place on the method page.

/** null: there is none, as in a package that knows of no page. */
let site: string | null = '';

/** The folder of the site; a widget in a foreign page must name it, the page itself stands in it. */
export function setSite(address: string | null): void {
  site = address;
}

export const hasSite = (): boolean => site !== null;

export function inSite(path: string): string {
  return site ? new URL(path, site).href : `./${path}`;
}

/** `topic` is the id of a heading of method.html. */
export function explain(topic: string): string {
  return inSite(`method.html#${topic}`);
}
