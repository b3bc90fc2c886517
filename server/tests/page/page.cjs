// The page at / in a headless Chromium: page.cjs URL CHROMIUM FOLDER. Screenshots go into the folder.

const assert = require("node:assert/strict");
const puppeteer = require("puppeteer-core");

async function main() {
  const [url, chromium, folder] = process.argv.slice(2);
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const page = await browser.newPage();
  const wrong = [];
  page.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("request", (request) => request.url().startsWith(url) || wrong.push(`asks ${request.url()}`));

  const text = (selector) => page.$eval(selector, (element) => element.textContent);
  const count = (selector) => page.$$eval(selector, (elements) => elements.length);
  const set = (id, value) => page.$eval(`#${id}`, (element, value) => { element.value = value; }, value);
  const until = (condition, ...args) => page.waitForFunction(condition, { timeout: 120000 }, ...args);
  const button = (word) => until((word) => document.getElementById("send").textContent === word, word);
  const send = async (message) => {
    await page.type("#text", message);
    await page.keyboard.press("Enter");
  };
  const metric = async (name) => Number((await (await fetch(`${url}metrics`)).text()).match(new RegExp(`^${name} (.*)$`, "m"))[1]);

  await page.setViewport({ width: 900, height: 700 });
  await page.goto(url);
  await until(() => document.getElementById("model").textContent !== "Unisonic");

  // A message with markup, and its answer, piece by piece.
  await page.click("summary");
  await set("system", "You are a helpful assistant.");
  await set("temperature", "0");
  await set("max_tokens", "60");
  await page.click("summary");
  await send("Why is the sky <b>blue</b>? Answer in one sentence.");
  await button("Stop");
  await button("Send");
  assert.equal(await count("article b"), 0, "a message is text");
  assert.match(await text("#status"), /^\d+ tokens, [\d.]+\/s, seed \d+$/);
  const first = await text("article.assistant .content");
  assert(first.length > 10, first);
  await page.screenshot({ path: `${folder}/page.png` });

  // Shift+Enter is a new line; an answer that is stopped stays, and the server knows.
  await set("max_tokens", "");
  await page.type("#text", "Write a very long");
  await page.keyboard.down("Shift");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Shift");
  await send("story about a river.");
  await until(() => (document.querySelectorAll("article.assistant .content")[1]?.textContent ?? "").length > 20);
  const cancelled = await metric("unisonic_requests_cancelled_total");
  await page.click("#send");
  await button("Send");
  assert.equal(await text("#status"), "stopped");
  assert.match(await text("article.user:nth-of-type(3)"), /long\nstory/);
  for (let tries = 0; (await metric("unisonic_requests_running")) > 0; tries++) {
    assert(tries < 100, "the answer goes on");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.equal(await metric("unisonic_requests_cancelled_total"), cancelled + 1);

  // A new chat in the middle of an answer begins with nothing.
  await send("And then?");
  await until(() => (document.querySelectorAll("article.assistant .content")[2]?.textContent ?? "").length > 5);
  await page.click("#new");
  await button("Send");
  assert.equal(await count("article"), 0);
  assert.equal(await page.evaluate("messages.length"), 0);

  // An error is said, and the message is there to be sent again.
  const before = wrong.length;
  await set("temperature", "-1");
  await send("Hello");
  await until(() => document.querySelector("article .error"));
  assert.match(await text("article .error"), /temperature/);
  assert.equal(await page.$eval("#text", (element) => element.value), "Hello");
  // Chromium logs each status of 400 and more.
  assert(wrong.splice(before).every((line) => line.includes("400")));

  // A narrow and dark screen; long words do not widen it.
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await page.setViewport({ width: 360, height: 640 });
  await set("temperature", "0");
  await set("max_tokens", "20");
  await set("text", "");
  await page.click("#new");
  await send("Spell " + "Donaudampfschifffahrt".repeat(5) + ".");
  await button("Stop");
  await button("Send");
  await page.screenshot({ path: `${folder}/page-narrow.png` });
  await page.click("summary");
  await page.screenshot({ path: `${folder}/page-settings.png` });
  assert((await (await page.$("#log")).boundingBox()).height > 100, "settings hide the conversation");
  assert(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the screen");

  assert.deepEqual(wrong, []);
  await browser.close();
  console.log("ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
