import { css } from 'lit';

export const appStyles = css`
  header {
    display: flex;
    flex-wrap: wrap;
    align-items: center;
    gap: 0.25rem 1rem;
    padding: 0.6rem 1.25rem;
    border-bottom: 1px solid var(--line);
  }
  .skip {
    position: absolute;
    z-index: 10;
    top: 0.5rem;
    left: 0.5rem;
    padding: 0.4rem 0.75rem;
    border-radius: var(--radius);
    background: var(--accent);
    color: var(--accent-text);
    transform: translateY(-4rem);
  }
  .skip:focus {
    transform: none;
  }
  h1 {
    margin: 0;
    font-size: 1.0625rem;
    letter-spacing: -0.01em;
  }
  header p {
    flex: 1;
    margin: 0;
    color: var(--text-soft);
    font-size: 0.875rem;
  }
  nav {
    display: flex;
    flex-wrap: wrap;
    align-items: center;
    gap: 0.5rem 0.75rem;
    font-size: 0.8125rem;
  }
  main.dropping {
    outline: 3px dashed var(--accent);
    outline-offset: -6px;
  }
  main {
    display: grid;
    grid-template-columns: 21rem minmax(0, 1fr);
    grid-template-rows: auto auto auto 1fr;
    background: linear-gradient(to right, var(--surface-raised) 21rem, transparent 21rem);
  }
  .setup {
    grid-area: 1 / 1 / 5 / 2;
    position: sticky;
    top: 0;
    align-self: start;
    max-height: 100vh;
    overflow-y: auto;
    padding: 1.1rem 1.25rem 1.5rem;
    border-right: 1px solid var(--line);
    background: var(--surface-raised);
  }
  .answer {
    grid-area: 1 / 2;
    z-index: 1;
    padding: 1.1rem 2rem 0.5rem;
    background: var(--surface);
  }
  .details {
    grid-area: 4 / 2;
    display: grid;
    grid-template-columns: minmax(0, 1fr);
    align-content: start;
    gap: 2.25rem;
    min-width: 0;
    max-width: 78rem;
    padding: 1rem 2rem 3rem;
  }
  oometer-verdict {
    max-width: 74rem;
  }
  .compare {
    display: flex;
    align-items: center;
    gap: 0.4rem;
  }
  .compare svg {
    width: 1rem;
    height: 1rem;
    fill: none;
    stroke: currentColor;
    stroke-width: 1.5;
  }
  .beside {
    max-width: 74rem;
    margin: 0.35rem 0 0.5rem;
    font-size: 0.875rem;
  }
  .notice {
    max-width: 74rem;
    margin-bottom: 0.9rem;
    padding: 0.6rem 0.9rem;
    border-left: 4px solid var(--tight);
    border-radius: 2px;
    background: var(--tight-soft);
    font-size: 0.9rem;
  }
  .notice.error {
    border-color: var(--over);
    background: var(--over-soft);
  }
  .notice > :last-child {
    margin-bottom: 0;
  }
  .buttons {
    display: flex;
    flex-wrap: wrap;
    gap: 0.5rem;
    min-height: 1.875rem;
  }
  .buttons .fix {
    border-color: var(--accent);
    background: var(--accent);
    color: var(--accent-text);
    font-weight: 600;
  }
  .stamp {
    margin: 0;
    padding: 0.4rem 0.9rem;
    border-left: 4px solid var(--line-strong);
    background: var(--surface-raised);
    font-size: 0.875rem;
  }
  .details[inert] > :not(.stamp) {
    opacity: 0.55;
  }
  /* What comes after the answer moves nothing. */
  oometer-own-model {
    grid-area: 2 / 2;
    min-width: 0;
  }
  oometer-remedy {
    grid-area: 3 / 2;
    display: block;
    min-height: 3.5rem;
    padding: 0.75rem 2rem 0.25rem;
  }
  .details > * {
    scroll-margin-top: 13rem; /* the answer stays above */
  }
  oometer-advice:not(:defined) {
    display: block;
    min-height: 26rem;
  }
  .notice ul {
    margin: 0.25rem 0 0.5rem;
    padding-left: 1.2rem;
  }
  .waiting {
    min-height: 7.5rem;
    color: var(--text-soft);
  }
  footer {
    padding: 1rem 1.25rem;
    border-top: 1px solid var(--line);
    color: var(--text-soft);
    font-size: 0.8125rem;
  }
  @media (min-height: 38rem) {
    .answer {
      position: sticky;
      top: 0;
      border-bottom: 1px solid var(--line);
    }
  }
  @media (max-width: 60rem) {
    header {
      padding: 0.5rem 1rem;
    }
    header p,
    header a,
    header oometer-copy {
      display: none;
    }
    h1 {
      flex: 1;
    }
    main {
      display: block;
      background: none;
    }
    .answer {
      padding: 0.75rem 1rem 0.25rem;
    }
    .compare {
      position: relative; /* its hidden words are no wider than it */
      overflow: hidden;
      min-height: 1.5rem;
      padding: 0.2rem 0.35rem;
    }
    .compare span {
      position: absolute;
      clip-path: inset(50%);
    }
    oometer-remedy {
      padding: 0.6rem 1rem 0.25rem;
    }
    .setup {
      position: static;
      max-height: none;
      padding: 1rem;
      border: 0;
      border-bottom: 1px solid var(--line);
    }
    .details {
      padding: 1.25rem 1rem 2rem;
    }
  }
  @media print {
    nav,
    .setup {
      display: none;
    }
    main {
      display: block;
    }
    .answer {
      position: static;
    }
  }
`;
