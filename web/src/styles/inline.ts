/**
 * Declarations for `.style=${styles({...})}`. A style attribute would need 'unsafe-inline' in the
 * Content-Security-Policy, which Lit's styleMap runs into at its first render; the property does not.
 */
export function styles(declarations: Readonly<Record<string, string>>): string {
  return Object.entries(declarations)
    .map(([name, value]) => `${name}:${value}`)
    .join(';');
}
