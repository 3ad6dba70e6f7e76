// Runs the search of the built site: node search.js SITE QUERIES.json prints the hits as JSON.
// The worker is the file that a browser loads, with the index that a browser loads.
const fs = require("fs"), path = require("path"), vm = require("vm")
const [site, queries] = process.argv.slice(2)
const folder = path.join(site, "assets/javascripts/workers")
const worker = fs.readdirSync(folder).find(name => /^search\..*\.min\.js$/.test(name))
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json")))
const waiting = [], self = {}
const context = vm.createContext({
  self, console, Promise, Map, Set, URL, setTimeout, TextEncoder,
  postMessage: message => waiting.shift()(message),
  addEventListener: (_, heard) => { self.heard = heard },
  importScripts: (...names) => names.forEach(name =>
    vm.runInContext(fs.readFileSync(path.resolve(folder, name), "utf8"), context)),
  location: { href: "file://" + folder },
})
context.self = context
vm.runInContext(fs.readFileSync(path.join(folder, worker), "utf8"), context)
const ask = (type, data) => new Promise(resolve => {
  waiting.push(resolve)
  self.heard({ data: { type, data } })
})
async function main() {
  index.config.lang = index.config.lang || ["en"]
  await ask(0, { ...index, options: { suggest: false } })
  const found = []
  for (const query of JSON.parse(queries)) {
    const { data } = await ask(2, query)
    found.push(data.items.map(group => group[0].location))
  }
  console.log(JSON.stringify(found))
}
main()
