// Elements without HTML text: whatever a string holds, it becomes a text node or an attribute's value, never markup.

export type Child = Node | string | null | undefined | false;

type Listeners = { [E in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[E]) => void };

export interface Properties {
  class?: string;
  id?: string;
  title?: string;
  text?: string;
  attributes?: Record<string, string | number | boolean>;
  on?: Listeners;
}

function apply(element: HTMLElement | SVGElement, properties: Properties): void {
  if (properties.class) element.setAttribute("class", properties.class);
  if (properties.id) element.id = properties.id;
  if (properties.title) element.setAttribute("title", properties.title);
  if (properties.text !== undefined) element.textContent = properties.text;
  for (const [name, value] of Object.entries(properties.attributes ?? {})) element.setAttribute(name, String(value));
  for (const [name, listener] of Object.entries(properties.on ?? {})) element.addEventListener(name, listener as EventListener);
}

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties | string = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, typeof properties === "string" ? { class: properties } : properties);
  add(element, ...children);
  return element;
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number> = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(element, { attributes });
  add(element, ...children);
  return element;
}

export function add(parent: Element, ...children: Child[]): void {
  for (const child of children) if (child) parent.append(child);
}

export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  add(parent, ...children);
}

/** Text that may break after signs, for settings that have no blanks. */
export function breakable(text: string): HTMLElement {
  const parts = text.split(/(?<=[=:,(])/);
  return el("span", {}, ...parts.flatMap((part) => [part, document.createElement("wbr")]));
}

/** A button that looks like text until it is pointed at; the label is what a screen reader says. */
export function button(text: string, press: () => void, properties: Properties = {}): HTMLButtonElement {
  const made = el("button", { ...properties, text, on: { click: press, ...properties.on } });
  made.type = "button";
  return made;
}
