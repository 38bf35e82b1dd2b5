// The models that a setup can name: the core's presets, and one's own, which links carry with them.
import type { Setup } from './fields';
import { absentModel, idOf, isAside, ownModel, unpack, type Model, type OwnModel } from './model';
import type { Traits } from './traits';
import type { View } from './permalink';

export class Library {
  private readonly own = new Map<string, Model>();

  /** `traits` asks the core for those of one's own model. */
  constructor(
    public presets: readonly Model[],
    private readonly traits: (own: OwnModel) => Promise<Traits>,
  ) {}

  readonly find = (setup: Setup): Model | undefined =>
    setup.config === '' ? this.presets.find(({ id }) => id === setup.model) : this.own.get(setup.config);

  /** The value of the field `config` by which setups name it from now on. */
  async add(own: OwnModel): Promise<string> {
    const id = await idOf(own);
    this.own.set(id, ownModel(id, own, await this.traits(own)));
    return id;
  }

  /** Unpacks the models that a link brought. Where one cannot be read, the setup keeps its preset, and a problem says so. */
  async open<T extends View & { problems: string[] }>(link: T): Promise<T> {
    const problems = [...link.problems];
    const settle = async (setup: Setup): Promise<Setup> => {
      if (setup.config === '' || this.own.has(setup.config)) return setup;
      if (isAside(setup.config)) {
        this.own.set(setup.config, absentModel(setup.config));
        return setup;
      }
      let own: OwnModel;
      try {
        own = await unpack(setup.config);
      } catch {
        problems.push('The model in it cannot be read.');
        return { ...setup, config: '' };
      }
      this.own.set(setup.config, ownModel(setup.config, own, await this.traits(own)));
      return setup;
    };
    const [setup, ...pins] = await Promise.all([link.setup, ...link.pins].map(settle));
    return { ...link, setup: setup ?? link.setup, pins, problems };
  }
}
