import { css } from 'lit';

export const controlStyles = css`
  form {
    display: flex;
    flex-wrap: wrap;
    align-items: end;
    gap: 0.6rem 1rem;
    margin-bottom: 0.75rem;
  }
  label.field {
    display: grid;
    gap: 0.2rem;
    color: var(--text-soft);
    font-size: 0.8125rem;
  }
  .field :is(input, select) {
    width: 7rem;
  }
  form button {
    min-height: 2.125rem; /* as high as the fields */
  }
  @media (max-width: 40rem) {
    .segments label {
      white-space: normal;
    }
  }
  progress {
    flex: 1 1 8rem;
    max-width: 16rem;
    height: 2.125rem;
    accent-color: var(--accent);
  }
  @media print {
    form {
      display: none;
    }
  }
`;

export const mapStyles = css`
  .readout {
    min-height: 1.5em;
    margin: 0 0 0.35rem;
  }
  .map {
    display: grid;
    grid-template: auto auto / auto minmax(0, 1fr);
    gap: 0.25rem 0.5rem;
    max-width: 60rem;
    font-size: 0.75rem;
  }
  .up {
    display: flex;
    flex-direction: column;
    justify-content: space-between;
    max-width: 6.5rem;
    color: var(--text-soft);
    text-align: right;
  }
  .across {
    grid-column: 2;
    display: flex;
    justify-content: space-between;
    color: var(--text-soft);
  }
  .cells {
    position: relative;
    height: 22rem;
    overflow: hidden;
    border: 1px solid var(--line-strong);
    cursor: crosshair;
  }
  .run {
    position: absolute;
    display: grid;
    place-items: center;
    overflow: hidden;
    forced-color-adjust: none;
    white-space: nowrap;
  }
  /* Lightness and stripes tell what colours tell; words stand in the widest stretch of each. */
  .fits {
    background: var(--fits-soft);
    color: var(--fits);
  }
  .tight {
    background: repeating-linear-gradient(135deg, var(--tight-soft) 0 8px, var(--tight) 8px 9.5px);
  }
  .does-not-fit {
    background: var(--over);
    color: var(--surface);
  }
  .tight.run {
    text-shadow:
      0 0 3px var(--tight-soft),
      0 0 3px var(--tight-soft),
      0 0 3px var(--tight-soft);
  }
  .refused {
    background: repeating-linear-gradient(45deg, var(--surface) 0 3px, var(--line) 3px 6px);
  }
  .former {
    margin: 0 0 0.5rem;
    padding: 0.3rem 0.75rem;
    border-left: 4px solid var(--line-strong);
    background: var(--surface-raised);
  }
  .old .cells {
    opacity: 0.5;
    cursor: default;
  }
  .unknown {
    background: var(--surface-sunken);
  }
  .cursor,
  .now {
    position: absolute;
    outline: 2px solid var(--text);
    pointer-events: none;
  }
  .now {
    outline: 2px dashed var(--text);
  }
  .legend {
    display: flex;
    flex-wrap: wrap;
    gap: 0.3rem 1.1rem;
    margin: 0.6rem 0;
    padding: 0;
    list-style: none;
    font-size: 0.8125rem;
  }
  .legend li {
    display: flex;
    align-items: center;
    gap: 0.4rem;
  }
  .legend .swatch {
    width: 1.1rem;
    height: 1.1rem;
    border: 1px solid var(--line-strong);
  }
  @media print {
    details {
      display: none;
    }
    .run {
      print-color-adjust: exact;
    }
  }
`;
