// The voices that this server has, as a list to choose from.

export class Voices {
  constructor(select, key) {
    this.select = select;
    this.key = key;
    this.known = new Map();
  }

  get chosen() {
    return this.known.get(this.select.value) ?? { name: null, model: null };
  }

  async load() {
    const headers = this.key() ? { Authorization: `Bearer ${this.key()}` } : {};
    const answer = await fetch("v1/voices", { headers });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error.message);
    this.known.clear();
    this.select.replaceChildren();
    const models = new Set(body.voices.map((each) => each.model));
    for (const each of body.voices) {
      const id = `${each.model}/${each.name}`;
      this.known.set(id, each);
      const name = models.size > 1 ? `${each.name} (${each.model})` : each.name;
      const option = new Option(name, id, each.default, each.default);
      option.title = each.description;
      this.select.append(option);
    }
  }
}
