"""The portal in a browser: what a person sees, with jobs that were made, and with a service that runs them."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.service.made_jobs import EVIL, SPACE, Made, populate, simulated
from tests.service.storm import TRAIN, free_port, running
from tests.service.test_replicas import SPEC as LONG
from tests.service.test_replicas import TRAIN as LONG_TRAIN

import elastune as et
from elastune.service.app import create_app
from elastune.service.jobs import Job
from elastune.service.tables import JOBS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DARK = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"}
SHORT: dict[str, Any] = {
    "name": "short",
    "trainable": "train.py:train",
    "space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "algorithm": {"FIFO": {"n": 4, "R": 2}},
}


@dataclass
class Site:
    """A service with made jobs."""

    url: str
    made: Made
    admin: str
    member: str
    jobs: dict[str, Job]


@dataclass
class Visit:
    """A browser's window, and whatever in it should not have happened."""

    page: Page
    url: str
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(20_000)
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"a dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._own(request.url))

    def _own(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self.wrong.append(f"asks another host: {url}")

    def log_in(self, token: str) -> None:
        self.page.goto(f"{self.url}/#token={token}")
        expect(self.page.get_by_role("heading", name="Jobs")).to_be_visible()

    def go(self, where: str) -> None:
        self.page.evaluate("where => { location.hash = where }", where)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("there is no chromium to look at the portal with: apt-get install chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        yield playwright.chromium.launch(executable_path=chromium, args=arguments)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Made.in_folder(tmp_path_factory.mktemp("portal"))
    admin, member = made.token("vision", "admin"), made.token("vision", "member")
    jobs = populate(made, "vision")
    jobs["evil"] = evil_job(made, "vision")
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(made.service), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Site(f"http://127.0.0.1:{port}", made, admin, member, jobs)
    server.should_exit = server.force_exit = True
    thread.join()


def evil_job(made: Made, tenant: str) -> Job:
    """Its name, its reason and its parameters are HTML."""
    job = made.job(tenant, "evil", "succeeded")
    made.wrote(
        job,
        simulated("evil", n=9, space={**SPACE, "<img src=x onerror=alert(1)>": et.choice([f"a{EVIL}", f"b{EVIL}"])}),
    )
    with made.service.database.write() as connection:
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values(name=EVIL, reason=EVIL, state="failed"))
    return job


@pytest.fixture
def context(request: pytest.FixtureRequest, browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(**getattr(request, "param", DARK))
    yield context
    context.close()


@pytest.fixture
def visit(context: BrowserContext, site: Site) -> Iterator[Visit]:
    visit = Visit(context.new_page(), site.url)
    yield visit
    assert not visit.wrong


def test_a_link_logs_in_and_the_token_leaves_the_address(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    assert site.member not in visit.page.url
    assert visit.page.evaluate("document.cookie") == ""
    rows = visit.page.locator("tbody tr")
    expect(rows).to_have_count(len(site.jobs))
    running = visit.page.locator(f"tr[data-key='{site.jobs['running'].id}']")
    expect(running).to_contain_text("running")
    expect(running).to_contain_text("accuracy")
    visit.page.get_by_role("button", name=re.compile("^open")).click()
    expect(rows).to_have_count(2)
    visit.page.reload()
    expect(visit.page.get_by_role("heading", name="Jobs")).to_be_visible()


def test_a_wrong_token_is_refused_with_a_reason(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/#token=elt_wrong")
    expect(visit.page.get_by_role("alert")).to_contain_text("not valid")
    visit.page.get_by_label("Token").fill(site.member)
    visit.page.get_by_role("button", name="Log in").click()
    expect(visit.page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert all("401" in said for said in visit.wrong), visit.wrong
    visit.wrong.clear()


def test_a_job_shows_its_best_configuration_first_and_copies_it(
    visit: Visit, site: Site, context: BrowserContext
) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.log_in(site.member)
    job = site.jobs["seed 3"].id
    best = visit.page.request.get(f"{site.url}/api/v1/jobs/{job}/best").json()
    visit.go(f"#/jobs/{job}")
    card = visit.page.get_by_label("Best configuration", exact=True)
    for name in SPACE:
        expect(card).to_contain_text(name)
    expect(card).to_contain_text(f"{best['value']:.5g}")
    expect(card).to_be_in_viewport(ratio=1)
    card.get_by_role("button", name="Copy as JSON").click()
    expect(card.get_by_role("button", name="Copied")).to_be_visible()
    assert json.loads(visit.page.evaluate("navigator.clipboard.readText()")) == best["params"]


def test_curves_parameters_machines_and_plan_are_drawn(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['planned'].id}")
    page = visit.page
    curves = page.get_by_role("img", name=re.compile("^Learning curves"))
    expect(curves.locator(".series")).to_have_count(12)
    expect(page.locator(".pline")).to_have_count(30)
    expect(page.get_by_role("img", name=re.compile("^Machines over time")).locator(".series")).to_have_count(2)
    expect(page.get_by_role("table", name="Stages").locator("tbody tr")).to_have_count(4)
    curves.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip:visible")).to_contain_text("iteration 1")


def test_a_trial_opens_with_its_log_and_closes_with_escape(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['running'].id}")
    visit.page.get_by_role("table", name="Trials").get_by_role("button").first.click()
    dialog = visit.page.get_by_role("dialog")
    expect(dialog).to_contain_text("epoch 27: accuracy")
    expect(dialog).to_contain_text(EVIL)
    visit.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_failed_job_shows_its_reason_and_log_at_once(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['failed'].id}")
    expect(visit.page.get_by_role("alert")).to_contain_text("to install requirements.txt ended with code 1")
    log = visit.page.get_by_label("Log of the build")
    expect(log).to_contain_text("No matching distribution found for torhc")
    expect(log).to_be_in_viewport()


def test_failed_trials_are_one_line_below_the_best_configuration(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['flaky'].id}")
    expect(visit.page.get_by_label("Best configuration", exact=True)).to_be_in_viewport(ratio=1)
    warnings = visit.page.get_by_label("Warnings")
    line = warnings.locator("summary")
    expect(line).to_have_text(re.compile(r"^20 of 40 trials failed: RuntimeError: flaky\s…$"))
    expect(line).to_be_in_viewport(ratio=1)
    expect(warnings.locator("li").first).to_be_hidden()
    line.click()
    expect(warnings.locator("li")).to_have_count(20)
    expect(warnings).not_to_contain_text("line 29")
    warnings.get_by_role("button", name="show all").first.click()
    expect(warnings).to_contain_text("line 29")


def test_a_long_reason_is_cut_until_somebody_wants_all_of_it(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    row = visit.page.locator(f"tr[data-key='{site.jobs['long reason'].id}']")
    expect(row).to_contain_text("ended with code 1: Collecting package-0")
    expect(row).not_to_contain_text("package-1")
    visit.go(f"#/jobs/{site.jobs['long reason'].id}")
    banner = visit.page.get_by_role("alert")
    expect(banner).not_to_contain_text("package-1")
    banner.get_by_role("button", name="show all").click()
    expect(banner).to_contain_text("package-39")
    expect(visit.page.locator(".history")).to_contain_text("Collecting package-0")
    expect(visit.page.locator(".history")).not_to_contain_text("package-1")


def test_a_job_that_ended_without_a_report_promises_nothing(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['fruitless'].id}")
    expect(visit.page.get_by_text("No trial has reported a finite value.")).to_be_visible()
    standing = visit.page.get_by_label("How it stands")
    expect(standing).to_contain_text("0 of 41 iterations")
    expect(standing.get_by_role("progressbar", name="Progress")).to_have_attribute("aria-valuenow", "0")
    expect(standing).to_contain_text("no price")
    expect(visit.page.get_by_role("table", name="Trials").locator("tbody tr")).to_have_count(9)
    for promise in ("Nothing to show yet", "as soon as"):
        expect(visit.page.get_by_text(promise).locator("visible=true")).to_have_count(0)


def test_before_the_first_word_of_the_service_a_job_shows_nothing(visit: Visit, site: Site) -> None:
    visit.page.add_init_script("window.EventSource = class { addEventListener() {} close() {} }")
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['planned'].id}")
    expect(visit.page.get_by_role("heading", name=site.jobs["planned"].id)).to_be_visible()
    expect(visit.page.locator("main section:visible")).to_have_count(0)


def test_a_value_that_the_algorithm_has_judged_is_explained(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['folds'].id}")
    expect(visit.page.get_by_label("Best configuration", exact=True)).to_contain_text("the mean of 5 folds")
    expect(visit.page.get_by_role("table", name="Trials").locator("tbody tr").first).to_contain_text("the mean of 5")
    expect(visit.page.locator(".pline")).to_have_count(5)  # and not that which was trained on all data


def test_a_question_about_a_job_goes_with_its_page(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['running'].id}")
    visit.page.get_by_role("button", name="Cancel job").click()
    expect(visit.page.get_by_role("dialog")).to_contain_text("Cancel this job?")
    visit.go(f"#/jobs/{site.jobs['planned'].id}")
    expect(visit.page.get_by_role("heading", name="planned")).to_be_visible()
    expect(visit.page.get_by_role("dialog")).to_have_count(0)


def test_back_leads_from_a_trial_to_its_job(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    job = f"#/jobs/{site.jobs['flaky'].id}"
    visit.go(job)
    dialog, trials = visit.page.get_by_role("dialog"), visit.page.get_by_role("table", name="Trials")
    for leave in (visit.page.go_back, lambda: visit.page.keyboard.press("Escape")):
        trials.get_by_role("button", name="flaky-00021").click()
        expect(dialog).to_contain_text("flaky-00021")
        assert visit.page.url.endswith(f"{job}/trials/flaky-00021")
        leave()
        expect(dialog).to_have_count(0)
        expect(visit.page).to_have_url(re.compile(f"{job}$"))
    visit.go(f"{job}/trials/flaky-00000")
    visit.page.reload()
    expect(dialog).to_contain_text("Failed")
    dialog.get_by_role("button", name="Close").click()
    expect(visit.page).to_have_url(re.compile(f"{job}$"))
    expect(visit.page.get_by_role("heading", name="flaky", exact=True)).to_be_visible()


def test_a_job_shows_its_experiment_and_is_deleted_when_it_has_ended(visit: Visit, site: Site) -> None:
    job = site.made.job("vision", "old", "cancelled", "cancelled by its owner")
    visit.log_in(site.member)
    visit.go(f"#/jobs/{job.id}")
    visit.page.get_by_text("Experiment", exact=True).click()
    expect(visit.page.get_by_text("loguniform [ 0.0001, 0.1 ]")).to_be_visible()
    expect(visit.page.get_by_text("SuccessiveHalving")).to_be_visible()
    visit.page.get_by_role("button", name="Delete").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(visit.page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(visit.page.locator("tbody tr")).to_have_count(len(site.jobs))


@pytest.mark.parametrize("context", [DARK], indirect=True, ids=["desktop"])
def test_a_few_parameters_and_the_metric_are_seen_without_scrolling(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['planned'].id}")
    expect(visit.page.locator(".axis-p .name")).to_have_count(len(SPACE) + 1)
    assert visit.page.locator(".chart .scroll").evaluate("each => each.scrollWidth <= each.clientWidth")


@pytest.mark.parametrize("context", [PHONE], indirect=True, ids=["phone"])
def test_many_parameters_scroll_in_their_box_and_keep_their_distance(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.go(f"#/jobs/{site.jobs['wide'].id}")
    names = visit.page.locator(".axis-p .name")
    expect(names).to_have_count(26)  # 25 parameters and the metric
    boxes = names.evaluate_all("all => all.map(each => each.getBBox()).map(box => [box.x, box.x + box.width])")
    width = float(visit.page.locator(".chart .scroll svg").get_attribute("width") or 0)
    assert boxes[0][0] >= 0 and boxes[-1][1] <= width
    assert all(left[1] < right[0] for left, right in pairwise(boxes))


def test_html_in_names_reasons_and_parameters_is_text(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    expect(visit.page.get_by_role("link", name=EVIL)).to_be_visible()
    visit.go(f"#/jobs/{site.jobs['evil'].id}")
    expect(visit.page.get_by_role("heading", name=EVIL)).to_be_visible()
    expect(visit.page.get_by_role("alert")).to_contain_text(EVIL)
    expect(visit.page.get_by_label("Best configuration", exact=True)).to_contain_text(EVIL)
    expect(visit.page.get_by_role("table", name="Trials")).to_contain_text(EVIL)
    assert "broken" not in visit.page.title()
    assert visit.page.locator("main script, main img").count() == 0


def test_an_experiment_shows_mean_and_deviation_and_a_row_for_each_seed(visit: Visit, site: Site) -> None:
    visit.log_in(site.member)
    visit.page.get_by_role("link", name="experiment exp-7c1").first.click()
    found = visit.page.request.get(f"{site.url}/api/v1/experiments/exp-7c1").json()
    expect(visit.page.locator(".big")).to_have_text(f"{found['mean']:.5g} ± {found['std']:.3g}")
    expect(visit.page.locator("tbody tr")).to_have_count(5)


def test_administrators_see_all_tenants_and_members_do_not(visit: Visit, site: Site) -> None:
    site.made.token("speech")
    visit.log_in(site.admin)
    visit.page.get_by_role("link", name="Tenants").click()
    expect(visit.page.get_by_role("rowheader", name="speech")).to_be_visible()
    visit.log_in(site.member)
    expect(visit.page.get_by_role("link", name="Tenants")).to_have_count(0)
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_label("Token")).to_be_visible()


@pytest.mark.parametrize("context", [PHONE], indirect=True, ids=["phone"])
def test_the_login_keeps_its_distance_from_the_edges(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/#token=elt_wrong")
    expect(visit.page.get_by_role("alert")).to_contain_text("not valid")
    card = visit.page.locator(".login").bounding_box()
    assert card is not None and card["x"] >= 12 and card["x"] + card["width"] <= 390 - 12
    visit.wrong.clear()


@pytest.mark.parametrize("context", [PHONE, DARK], indirect=True, ids=["phone", "dark"])
def test_every_page_fits_the_window(visit: Visit, site: Site) -> None:
    visit.log_in(site.admin)
    places = ["#/", *(f"#/jobs/{job.id}" for job in site.jobs.values()), "#/experiments/exp-7c1", "#/tenants"]
    for place in places:
        visit.go(place)
        expect(visit.page.locator("h1")).to_be_visible()
        visit.page.wait_for_load_state()
        visit.page.wait_for_timeout(400)  # until what it asks for is drawn
        size = visit.page.viewport_size
        used = visit.page.evaluate("Math.max(innerWidth, document.documentElement.scrollWidth)")  # phones zoom out
        assert size is not None and used <= size["width"], place
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = visit.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (sum(map(int, re.findall(r"\d+", background))) < 150) == dark


def test_a_real_job_is_followed_to_its_end_and_another_is_cancelled(context: BrowserContext, tmp_path: Path) -> None:
    for name, text in (("short", TRAIN), ("long", LONG_TRAIN)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(text)
    with running(tmp_path, devices=2) as service:
        client, visit = service.admin(), Visit(context.new_page(), service.url)
        visit.log_in((service.home / "admin-token").read_text().strip())
        short = client.submit(SHORT, tmp_path / "short")
        visit.page.get_by_role("link", name="short", exact=True).click()
        expect(visit.page.locator(".head .pill")).to_have_text("succeeded", timeout=120_000)
        expect(visit.page.get_by_role("table", name="Trials").locator("tbody tr")).to_have_count(4)
        best = client.best(short["id"])
        expect(visit.page.get_by_label("Best configuration", exact=True)).to_contain_text(f"{best['value']:.5g}")
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name="Download checkpoint").click()
        assert download.value.path().stat().st_size > 0
        long = client.submit(LONG, tmp_path / "long")
        visit.go(f"#/jobs/{long['id']}")
        expect(visit.page.locator(".head .pill")).to_have_text("running", timeout=120_000)
        visit.page.get_by_role("button", name="Cancel job").click()
        visit.page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        expect(visit.page.locator(".head .pill")).to_have_text("cancelled", timeout=120_000)
        expect(visit.page.locator(".history")).to_contain_text("cancelled by its owner")
        assert client.job(long["id"])["state"] == "cancelled"
    assert not visit.wrong
