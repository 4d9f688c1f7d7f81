// The SQL editor: CodeMirror, loaded on the SQL page only.

import { Compartment, EditorState, EditorView, HighlightStyle, PostgreSQL, Prec, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, completionKeymap, defaultKeymap, drawSelection, highlightSpecialChars, history, historyKeymap, keymap, placeholder, sql, syntaxHighlighting, tags } from "/console/vendor/codemirror.js";

const look = EditorView.theme({
  "&": { fontSize: "13.5px", color: "var(--text)", backgroundColor: "var(--surface)" },
  "&.cm-focused": { outline: "none" },
  ".cm-content": { fontFamily: "ui-monospace, 'SF Mono', Menlo, Consolas, monospace", padding: "10px 4px", minHeight: "8.6rem", caretColor: "var(--text)" },
  ".cm-scroller": { maxHeight: "26rem", overflow: "auto", lineHeight: "1.5" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-placeholder": { color: "var(--muted)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft)" },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", border: "1px solid var(--line-strong)", color: "var(--text)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", opacity: "0.8" },
});
const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "550" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--warn)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--good)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
]);

export function makeEditor(place, { value, onInput, onRun }) {
  const root = place.shadowRoot ?? place.attachShadow({ mode: "open" });
  const language = new Compartment();
  const run = { key: "Mod-Enter", run: (view) => { onRun(view.state.doc.toString()); return true; } };
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: value,
      extensions: [
        Prec.highest(keymap.of([run])),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
        history(), drawSelection(), highlightSpecialChars(), bracketMatching(), closeBrackets(), autocompletion({ icons: false }),
        language.of(sql({ dialect: PostgreSQL })),
        syntaxHighlighting(colours), look, placeholder("select …"), EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "Query" }),
        EditorView.updateListener.of((update) => update.docChanged && onInput(update.state.doc.toString())),
      ],
    }),
  });
  view.focus();
  return {
    show(text) {
      if (text !== view.state.doc.toString()) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    complete({ tables }) {
      const schema = Object.fromEntries(tables.map((table) => [table.table, table.columns.map((column) => ({ label: column.name, detail: column.type, type: "property" }))]));
      view.dispatch({ effects: language.reconfigure(sql({ dialect: PostgreSQL, schema })) });
    },
    destroy: () => view.destroy(),
  };
}
