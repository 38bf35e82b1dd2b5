import { css } from 'lit';

export const timelineStyles = css`
  .readout {
    min-height: 2.6em;
    margin: 0 0 0.4rem;
    font-size: 0.8125rem;
    line-height: 1.3;
  }
  .readout .swatch {
    width: 0.6rem;
    height: 0.6rem;
    margin: 0 0.2rem 0 0.5rem;
  }
  .frame {
    display: grid;
    grid-template: auto 11rem auto auto / 2rem minmax(0, 1fr);
    column-gap: 0.4rem;
  }
  .phases {
    grid-area: 1 / 2;
    position: relative;
    height: 1.6rem;
    overflow: hidden;
  }
  .phases > * {
    position: absolute;
    height: 1.5rem;
    border-left: 1px solid var(--line-strong);
  }
  .phases button {
    min-height: 1.5rem;
    min-width: 0;
    padding: 0 0.3rem;
    overflow: hidden;
    border-width: 0 0 0 1px;
    border-radius: 0;
    background: none;
    color: var(--text-soft);
    font-size: 0.75rem;
    text-align: left;
    text-overflow: ellipsis;
    white-space: nowrap;
    outline-offset: -2px;
  }
  .phases button:hover {
    background: var(--surface-sunken);
    color: var(--text);
  }
  .scale {
    grid-area: 2 / 1;
    position: relative;
    color: var(--text-soft);
    font-size: 0.75rem;
  }
  .scale span {
    position: absolute;
    right: 0;
    transform: translateY(50%);
    line-height: 1;
  }
  .plot {
    grid-area: 2 / 2;
    position: relative;
    overflow: hidden;
    border-bottom: 1px solid var(--line-strong);
    cursor: crosshair;
    touch-action: pan-y;
  }
  svg {
    position: absolute;
    inset: 0;
    width: 100%;
    height: 100%;
    forced-color-adjust: none;
  }
  .outline {
    fill: none;
    stroke: var(--line-strong);
    stroke-width: 1.5;
    vector-effect: non-scaling-stroke;
  }
  .rule {
    position: absolute;
    left: 0;
    right: 0;
    border-top: 1px solid var(--line);
  }
  .limit {
    position: absolute;
    left: 0;
    right: 0;
    border-top: 2px dashed var(--over);
  }
  .limit span {
    position: absolute;
    right: 0.25rem;
    top: 0.15rem;
    padding: 0 0.25rem;
    border-radius: 3px;
    background: var(--surface);
    color: var(--over);
    font-size: 0.75rem;
    line-height: 1.3;
  }
  .start {
    position: absolute;
    top: 0;
    bottom: 0;
    border-left: 1px dashed var(--line-strong);
  }
  .pin,
  .cursor {
    position: absolute;
    top: 0;
    bottom: 0;
    border-left: 2px solid var(--text);
    transform: translateX(-1px);
    pointer-events: none;
  }
  .cursor {
    border-left: 1px solid var(--text);
  }
  .chosen {
    position: absolute;
    top: 0;
    bottom: 0;
    background: color-mix(in srgb, var(--accent) 22%, transparent);
    pointer-events: none;
  }
  .foot {
    grid-area: 3 / 2;
    position: relative;
    height: 1.4rem;
    overflow: hidden;
    font-size: 0.75rem;
    font-weight: 600;
  }
  .foot span {
    position: absolute;
    transform: translateX(-50%);
  }
  .minimap {
    grid-area: 4 / 2;
    position: relative;
    height: 1.75rem;
    margin-right: 6rem;
    border: 1px solid var(--line);
    cursor: pointer;
    touch-action: none;
  }
  .minimap .sight {
    position: absolute;
    top: -1px;
    bottom: -1px;
    min-width: 3px;
    border: 2px solid var(--text);
    background: color-mix(in srgb, var(--surface) 35%, transparent);
    pointer-events: none;
  }
  .whole {
    grid-area: 4 / 2;
    justify-self: end;
    min-height: 1.75rem;
    font-size: 0.75rem;
  }
  .foot span.left {
    transform: none;
  }
  .foot span.right {
    transform: translateX(-100%);
  }
`;
