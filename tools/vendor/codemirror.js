// The editor of the SQL page, with completion of the lake's tables and columns.
export { EditorView, keymap, placeholder, drawSelection, lineNumbers, highlightSpecialChars } from "@codemirror/view";
export { EditorState, Compartment, Prec } from "@codemirror/state";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
export { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
export { tags } from "@lezer/highlight";
export { sql, PostgreSQL } from "@codemirror/lang-sql";
