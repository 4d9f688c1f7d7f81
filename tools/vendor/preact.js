// One file for the console: Preact, its hooks, and htm bound to it.
import { h } from "preact";
import htm from "htm";

export { h, render, Component, Fragment, createContext } from "preact";
export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
export const html = htm.bind(h);
