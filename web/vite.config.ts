// Builds the page into one file, dist/report.html: script and style stand in it, and a policy that names both by their hashes lets
// the browser run nothing else and fetch nothing at all.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const policy = (script: string, style: string) =>
  `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`;

const meta = (content: string) => `<meta http-equiv="Content-Security-Policy" content="${content}" />`;

/** The folder of the package that a module comes from; "" for our own. */
const packageOf = (module: string) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(module)?.[0] ?? "";

/** What is in the page of others, with their licences: a report goes where the repository's notice does not. */
function licences(modules: string[]): string {
  const packages = [...new Set(modules.map(packageOf))].filter(Boolean).sort();
  const texts = packages.map((folder) => {
    const { name, version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    return `${name} ${version}\n\n${readFileSync(`${folder}/LICENSE`, "utf8").trim()}`;
  });
  return `<!--\nThis page has these in it:\n\n${texts.join("\n\n\n").replaceAll("--", "- -")}\n-->`;
}

function oneFile(): Plugin {
  return {
    name: "one-file",
    enforce: "post",
    generateBundle(_, bundle) {
      let script = "";
      let style = "";
      let page = "";
      let modules: string[] = [];
      for (const [name, part] of Object.entries(bundle)) {
        if (part.type === "chunk") {
          script += part.code;
          modules = modules.concat(part.moduleIds);
        } else if (name.endsWith(".css")) style += part.source;
        else page = String(part.source);
        delete bundle[name];
      }
      // Inside a script element nothing but this ends it; in a string the two mean the same.
      script = script.trim().replaceAll("</script", "<\\/script");
      style = style.trim();
      // Each part goes in by a function: as a string its "$&" would be taken for a pattern.
      page = page
        .replace(/\s*<(script type="module"|link rel="(stylesheet|modulepreload)")[^>]*>(<\/script>)?/g, "")
        .replace("<!--policy-->", () => meta(policy(script, style)))
        .replace("<!--licences-->", () => licences(modules))
        .replace("<!--style-->", () => `<style>${style}</style>`)
        .replace("<!--script-->", () => `<script>${script}</script>`);
      this.emitFile({ type: "asset", fileName: "report.html", source: page });
    },
  };
}

/** While the page is worked on (npm run dev) it shows a sample: SAMPLE=streams npm run dev. */
function sample(): Plugin {
  const path = `samples/${process.env.SAMPLE ?? "oom"}.json`;
  return {
    name: "sample",
    apply: "serve",
    transformIndexHtml: (page) =>
      page.replace('id="gapless-data">', (slot) => slot + readFileSync(path, "utf8").replaceAll("<", "\\u003c")),
  };
}

export default defineConfig({
  plugins: [sample(), oneFile()],
  build: {
    target: "es2022",
    outDir: process.env.GAP_WEB_OUT ?? "dist",
    emptyOutDir: true,
    modulePreload: false,
    assetsInlineLimit: 1 << 20,
    cssCodeSplit: false,
    rolldownOptions: { output: { format: "iife" } },
  },
});
