declare module 'virtual:preset-traits' {
  const traits: Record<string, import('../state/model').Traits & { sequence_length: number | null }>;
  export default traits;
}
