declare module 'virtual:preset-traits' {
  const traits: Record<string, import('../state/model').Traits & { sequence_length: number | null }>;
  export default traits;
}

declare module '*/load?whole' {
  export const loader: (typeof import('./load'))['loader'];
}

declare module '*/load?graph' {
  export const loader: (typeof import('./load'))['loader'];
}

declare module '*/serve?graph' {
  export const serve: (typeof import('./serve'))['serve'];
}
