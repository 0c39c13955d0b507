// A few lines of AMD: Debian ships Vega as separate modules, each of which calls define(dependencies, factory). The page sets
// headsweepModules.next to a module's name before its source; nothing runs until headsweepModules.require(name).
"use strict";
const headsweepModules = {
  next: "",
  declared: {},
  ready: {},
  require(name) {
    if (this.ready[name]) return this.ready[name];
    // Two modules name a dependency differently from its file.
    const file = { "vega-selections": "vega-selection" }[name] || name;
    const declaration = this.declared[file];
    if (!declaration) throw new Error("the report lacks the module " + name);
    const exports = (this.ready[name] = this.ready[file] = {});
    declaration.factory(...declaration.dependencies.map((d) => (d === "exports" ? exports : this.require(d))));
    return exports;
  },
};
function define(dependencies, factory) {
  headsweepModules.declared[headsweepModules.next] = { dependencies, factory };
}
define.amd = true;
