// Styles that every component shares. Components have shadow roots, so that the same ones work in a foreign page.
import { css } from 'lit';

export const shared = css`
  :host {
    display: block;
    font-variant-numeric: tabular-nums;
  }
  :host([hidden]) {
    display: none;
  }
  *,
  *::before,
  *::after {
    box-sizing: border-box;
  }
  h2 {
    margin: 0 0 0.75rem;
    font-size: 1.05rem;
    font-weight: 650;
    letter-spacing: -0.005em;
  }
  p {
    margin: 0 0 0.75rem;
    overflow-wrap: break-word; /* a module's path is a long word */
  }
  a {
    color: var(--accent);
  }
  a.term {
    color: inherit;
    text-decoration: underline dotted var(--line-strong);
    text-underline-offset: 0.2em;
  }
  a.term:hover {
    text-decoration: underline solid var(--accent);
  }
  .heading {
    display: flex;
    flex-wrap: wrap;
    justify-content: space-between;
    align-items: center;
    gap: 0.5rem 1rem;
    margin-bottom: 0.6rem;
  }
  .heading > h2,
  .heading > h3 {
    margin: 0;
  }
  h3 {
    margin: 0 0 0.35rem;
    font-size: 0.875rem;
  }
  .soft {
    color: var(--text-soft);
  }
  .small {
    font-size: 0.8125rem;
    line-height: 1.45;
  }
  [hidden] {
    display: none !important;
  }
  .hidden {
    position: absolute;
    width: 1px;
    height: 1px;
    overflow: hidden;
    clip-path: inset(50%);
    white-space: nowrap;
  }
  :focus-visible {
    outline: 2px solid var(--accent);
    outline-offset: 2px;
  }
  button {
    min-height: 1.875rem;
    padding: 0.2rem 0.7rem;
    border: 1px solid var(--line);
    border-radius: var(--radius);
    background: var(--surface);
    color: var(--text);
    font: inherit;
    font-size: 0.8125rem;
    cursor: pointer;
  }
  button:hover {
    border-color: var(--line-strong);
  }
  summary {
    min-height: 1.75rem;
    font-size: 0.875rem;
    font-weight: 600;
    cursor: pointer;
  }
  table {
    width: 100%;
    border-collapse: collapse;
    font-size: 0.875rem;
  }
  th,
  td {
    padding: 0.35rem 0.5rem;
    border-bottom: 1px solid var(--line);
    text-align: left;
    vertical-align: baseline;
    font-weight: inherit;
  }
  th:first-child,
  td:first-child {
    padding-left: 0;
  }
  th:last-child,
  td:last-child {
    padding-right: 0;
  }
  thead th {
    color: var(--text-soft);
    font-size: 0.75rem;
    white-space: nowrap;
  }
  .number {
    text-align: right;
    white-space: nowrap;
  }
  td.module {
    min-width: 12rem;
  }
  td.shape {
    white-space: nowrap;
  }
  .swatch {
    display: inline-block;
    flex: none;
    width: 0.75rem;
    height: 0.75rem;
    border-radius: 2px;
    forced-color-adjust: none;
  }
  .scroll {
    position: relative; /* or hidden words in it would widen the page */
    overflow-x: auto;
  }
  @media print {
    .tools,
    .segments,
    .heading > button,
    oometer-copy {
      display: none;
    }
    h2,
    h3 {
      break-after: avoid;
    }
    .segment,
    .stack,
    .swatch,
    .allocated {
      print-color-adjust: exact;
    }
  }
  code {
    font-family: var(--mono);
    font-size: 0.92em;
    overflow-wrap: break-word;
  }
`;

/** A verdict's colour, of an element that bears its name as a class. */
export const verdicts = css`
  .fits {
    color: var(--fits);
  }
  .tight {
    color: var(--tight);
  }
  .does-not-fit {
    color: var(--over);
  }
`;

/** What one types and chooses in. */
export const fields = css`
  input:is([type='number'], [type='text'], [role='combobox']),
  select,
  textarea {
    width: 100%;
    min-width: 0;
    height: 2.125rem;
    padding: 0 0.5rem;
    border: 1px solid var(--line-strong);
    border-radius: var(--radius);
    background: var(--surface);
    color: var(--text);
    font: inherit;
    font-size: 0.9375rem;
    font-variant-numeric: tabular-nums;
  }
  [aria-invalid='true'] {
    border: 2px solid var(--over);
  }
`;

/** Cached memory belongs to no factor: stripes tell it from them without colour. */
export const STRIPES =
  'repeating-linear-gradient(135deg, var(--cached) 0 3px, color-mix(in srgb, var(--cached) 45%, var(--surface)) 3px 6px)';

export function fill(key: string): string {
  return key === 'cached' ? STRIPES : `var(--${key})`;
}

/** A row of figures: what each is, above it. */
export const figures = css`
  dl {
    display: flex;
    flex-wrap: wrap;
    gap: 0.75rem 2.5rem;
    margin: 0 0 1rem;
  }
  dt {
    color: var(--text-soft);
    font-size: 0.8125rem;
  }
  dd {
    margin: 0;
    font-size: 1.05rem;
    font-weight: 600;
  }
`;
