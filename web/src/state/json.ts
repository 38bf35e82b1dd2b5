// JSON of unknown origin, and JSON as text for a link.

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The members that a JSON pointer names. Ours hold no ~. */
export const keys = (pointer: string): string[] => pointer.split('/').slice(1);

/** What stands under these members, one in another; undefined where nothing does. */
export const within = (json: unknown, path: readonly string[]): unknown =>
  path.reduce((value, key) => (isObject(value) ? value[key] : undefined), json);

/** What stands at a pointer. */
export const at = (json: unknown, pointer: string): unknown => within(json, keys(pointer));

/** A value as text for a link: its JSON in base64url, which `toJob` can read at once. */
export function toText(value: unknown): string {
  const ascii = JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return btoa(ascii).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** Null for what `toText` did not write. */
export function fromText(packed: string): unknown {
  try {
    return JSON.parse(atob(packed.replaceAll('-', '+').replaceAll('_', '/')));
  } catch {
    return null;
  }
}
