import { css } from 'lit';

export const formStyles = css`
  form {
    display: grid;
    gap: 0.85rem;
  }
  @media (min-width: 40rem) and (max-width: 60rem) {
    form {
      grid-template-columns: repeat(2, minmax(0, 1fr));
      gap: 0.85rem 1.5rem;
      align-items: start;
    }
    details.more,
    form > .hint {
      grid-column: 1 / -1;
    }
  }
  .starts {
    display: flex;
    flex-wrap: wrap;
    align-items: center;
    gap: 0.3rem;
    grid-column: 1 / -1;
  }
  .starts .hint {
    width: 100%;
  }
  .starts button {
    min-height: 1.625rem;
    padding: 0 0.55rem;
    border-radius: 1rem;
    font-size: 0.75rem;
  }
  .field {
    display: grid;
    gap: 0.2rem;
    align-content: start;
    min-width: 0;
  }
  label,
  legend {
    padding: 0;
    font-size: 0.8125rem;
    font-weight: 600;
  }
  legend {
    margin-bottom: 0.2rem;
  }
  fieldset {
    min-width: 0;
    margin: 0;
    padding: 0;
    border: 0;
  }
  .hint {
    margin: 0;
    color: var(--text-soft);
    font-size: 0.75rem;
    line-height: 1.4;
  }
  .beyond {
    color: var(--tight);
  }
  .error {
    grid-column: 1 / -1;
    margin: 0;
    color: var(--over);
    font-size: 0.8125rem;
    line-height: 1.4;
    overflow-wrap: anywhere;
  }
  .pair.device {
    display: grid;
    grid-template-columns: minmax(0, 1fr) 4.5rem;
    gap: 0.2rem 0.6rem;
  }
  .device oometer-picker {
    --list-width: calc(100% + 5.1rem); /* as wide as the column: the count stands beside it */
  }
  .copies {
    grid-column: 1 / -1;
  }
  .steps {
    grid-column: 1 / -1;
    display: grid;
    grid-template-columns: 1fr 1fr;
    gap: 0.35rem;
  }
  button.plain {
    min-height: 1.5rem;
    margin-left: -0.15rem;
    padding: 0 0.15rem;
    border: 0;
    background: none;
    color: var(--accent);
    font-size: 0.75rem;
    text-decoration: underline;
    text-align: left;
    text-underline-offset: 2px;
  }
  .below {
    display: flex;
    min-height: 1.1rem;
    color: var(--text-soft);
    font-size: 0.75rem;
    text-align: center;
  }
  .below span {
    flex: 1;
  }
  .line {
    display: flex;
    flex-wrap: wrap;
    justify-content: space-between;
    align-items: baseline;
    gap: 0 0.5rem;
  }
  .stepper {
    display: grid;
    grid-template-columns: 1fr 5.5rem 1fr;
    gap: 0.35rem;
  }
  .stepper input {
    text-align: center;
  }
  .steps button,
  .stepper button {
    display: flex;
    flex-wrap: wrap;
    justify-content: center;
    align-content: center;
    align-items: baseline;
    gap: 0 0.35rem;
    min-height: 2.125rem;
    padding: 0 0.2rem;
    line-height: 1.1;
  }
  .steps .effect,
  .stepper button .effect {
    color: var(--text-soft);
    font-size: 0.6875rem;
    white-space: nowrap;
  }
  .slider {
    width: 100%;
    height: 1.5rem;
    margin: -0.2rem 0 -0.35rem;
    accent-color: var(--accent);
  }
  details.more {
    border-top: 1px solid var(--line);
    padding-top: 0.6rem;
  }
  .gist {
    color: var(--text-soft);
    font-size: 0.8125rem;
    font-weight: 400;
  }
  details[open] > summary > .gist {
    display: none;
  }
  .more > .count {
    padding: 0.45rem 0;
    border-top: 1px solid var(--line);
  }
  .typed {
    padding: 0.35rem 0;
  }
  .more > .typed,
  .rare > .typed {
    border-top: 1px solid var(--line);
  }
  .typed textarea {
    height: auto;
    padding: 0.35rem 0.5rem;
    font-size: 0.8125rem;
    resize: vertical;
  }
  .typed .number {
    width: 7rem;
  }
  .rare {
    margin-top: 0.6rem;
    padding-top: 0.6rem;
    border-top: 1px solid var(--line);
  }
  .setting {
    border-top: 1px solid var(--line);
  }
  .setting > summary {
    display: flex;
    justify-content: space-between;
    align-items: center;
    gap: 0.75rem;
    font-size: 0.8125rem;
    list-style: none;
  }
  .setting > summary::-webkit-details-marker {
    display: none;
  }
  .setting > summary .value {
    color: var(--text-soft);
    font-weight: 400;
    text-align: right;
  }
  .setting > summary .value::after {
    content: '';
    display: inline-block;
    width: 0.4rem;
    height: 0.4rem;
    margin-left: 0.5rem;
    border: solid var(--text-soft);
    border-width: 0 1.5px 1.5px 0;
    transform: rotate(45deg) translate(-0.12rem, -0.12rem);
  }
  .setting[open] > summary .value::after {
    transform: rotate(-135deg) translate(-0.05rem, -0.05rem);
  }
  .setting > fieldset {
    padding-bottom: 0.6rem;
  }
  .option {
    display: grid;
    grid-template-columns: auto 1fr auto;
    gap: 0 0.4rem;
    align-items: baseline;
    padding: 0.25rem 0.35rem;
    margin: 0 -0.35rem;
    border-radius: 4px;
    font-size: 0.8125rem;
    font-weight: 400;
    cursor: pointer;
  }
  .option:hover {
    background: var(--surface-sunken);
  }
  .option input {
    margin: 0;
    align-self: center;
    accent-color: var(--accent);
  }
  .option .effect {
    color: var(--text-soft);
    font-size: 0.75rem;
    white-space: nowrap;
  }
  .option .about {
    grid-column: 2 / -1;
    color: var(--text-soft);
    font-size: 0.75rem;
    line-height: 1.35;
  }
`;
