declare module 'virtual:models' {
  type Models = readonly import('../state/model').Model[];
  /** Those that the core's first part knows. */
  export const first: Models;
  /** The address of the others, as JSON. */
  export const later: string;
}

declare module 'virtual:hub-models' {
  const models: readonly import('../state/hub').HubModel[];
  export default models;
}
