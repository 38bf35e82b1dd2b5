declare module 'virtual:preset-traits' {
  const traits: Record<string, { text: boolean; images: boolean; sequence_length: number | null }>;
  export default traits;
}

declare module '*/serve?whole' {
  export const serve: (typeof import('./serve'))['serve'];
}
