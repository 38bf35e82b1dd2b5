declare module 'virtual:preset-traits' {
  const traits: Readonly<Record<string, import('../state/traits').Traits>>;
  export default traits;
}
