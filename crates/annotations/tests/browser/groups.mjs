// Groups on the account page: invitations and members.
import { auditPage, equal, holds } from "../../../pastes/tests/browser/watch.mjs";
import { pictures } from "./pictures.mjs";
import { signUp } from "./steps.mjs";

const send = (page, selector) => Promise.all([page.waitForNavigation(), page.locator(selector).click()]);
const names = (page) => page.$$eval(".groups strong", (all) => all.map((it) => it.textContent));

export async function invited_user_joins_or_declines({ open, close }) {
  const [owner, guest] = [await open(), await open()];
  await signUp(owner, "owner");
  const name = await signUp(guest, "guest");
  const { page, base } = owner;
  await page.goto(`${base}/account`);
  for (const group of ["Reading", "Selling"]) {
    await page.type("#group-name", group);
    await send(page, "form[action='/account/groups'] button");
  }
  for (const number of [0, 1]) {
    const [id] = await page.$$eval("[id^=member-]", (all, at) => [all[at].id], number);
    await page.type(`#${id}`, name);
    await send(page, `form:has(#${id}) button:not([formaction])`);
  }
  await auditPage(owner, "groups-owner");
  await guest.page.goto(`${base}/account`);
  equal(await names(guest.page), ["Selling", "Reading"], "asked, and in neither");
  await auditPage(guest, "invitations");
  await pictures(guest.page, "invitations", "#invitations-title");
  await send(guest.page, "li:nth-child(1) form[action='/account/decline'] button");
  await send(guest.page, "form[action='/account/join'] button");
  equal(await names(guest.page), ["Reading"], "in the one that was chosen");
  holds(!(await guest.page.$("#invitations-title")), "nothing is open");
  await auditPage(guest, "joined");
  // The owner removes the member.
  const [id] = await page.$$eval("[id^=member-]", (all) => [all[0].id]);
  await page.type(`#${id}`, name);
  await send(page, `form:has(#${id}) [formaction='/account/remove']`);
  await guest.page.reload();
  equal(await names(guest.page), [], "out");
  await close(owner);
  return close(guest);
}
