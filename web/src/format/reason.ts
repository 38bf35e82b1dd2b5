/** What was thrown, in words. */
export const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** The core's "found X; Y; expected Z" as sentences for somebody who sees X in the field. */
export function sentences(message: string): string {
  const range = /^found (-?[\d.]+); expected a (?:whole )?number from (-?[\d.]+) to ([\d.]+)$/.exec(message);
  if (range) {
    const [, found, least, most] = range;
    return Number(found) < Number(least) ? `Enter ${least} or more.` : `Enter ${most} or less.`;
  }
  const parts = message.split('; ');
  const [first = ''] = parts;
  if (parts.length > 1 && /^found ("[^"]*"|[\w.-]+|an object|a list)$/.test(first)) parts.shift();
  return parts.map((part) => capital(/[.?!]$/.test(part) ? part : `${part}.`)).join(' ');
}
