"""The inspector's page in a browser: it warns first, sorts, filters, and fits every screen."""

import json
import pathlib
import shutil

import pytest

from gshard_annotate.inspector.differences import diff
from gshard_annotate.inspector.report import Report

pytestmark = pytest.mark.slow

SAMPLE = pathlib.Path(__file__).parents[1] / "packages/gshard-annotate/tests/report.json"
REPORT = Report.from_json(SAMPLE.read_text("utf-8"))
EMPTIER = Report.from_json(SAMPLE.read_text("utf-8").replace("all-gather", "all-reduce"))

# The lowest contrast of a text with what lies behind it, by WCAG's formula, and that text.
CONTRAST = """
const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const colour = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const rgba = colour(getComputedStyle(node).backgroundColor);
    if (rgba.length < 4 || rgba[3] > 0) return rgba;
  }
  return [255, 255, 255];
};
let worst = [99, ""];
for (const node of document.body.querySelectorAll("*")) {
  const texts = [...node.childNodes].filter((one) => one.nodeType === 3 && one.data.trim());
  if (!texts.length || !node.offsetParent || ["SCRIPT", "STYLE"].includes(node.tagName)) continue;
  const [a, b] = [light(colour(getComputedStyle(node).color)), light(behind(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < worst[0]) worst = [ratio, texts[0].data.trim()];
}
return worst;
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return REPORT.write_html(tmp_path_factory.mktemp("report") / "report.html").as_uri()


def start(profile, *, scripts=True):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-sync",
                 "disable-quic", "disable-background-networking", "disable-component-update",
                 "disable-dev-shm-usage", f"user-data-dir={profile}"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    if not scripts:
        options.add_experimental_option(
            "prefs", {"profile.managed_default_content_settings.javascript": 2}
        )
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs the programs chromium and chromedriver")
    driver = start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def browser(opened, address):
    """The page, freshly loaded, on a laptop."""
    screen(opened, 1280)
    emulate(opened, "light")
    opened.get(address)
    yield opened
    # A link to a row leaves its mark in the address, and loading the same address anew keeps it.
    opened.get("about:blank")


def screen(browser, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def emulate(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def texts(browser, selector):
    return [each.text for each in browser.find_elements("css selector", selector) if each.text]


def rows(browser, table):
    shown = browser.find_elements("css selector", f"#{table} tbody tr")
    return [each.get_attribute("id") for each in shown if each.is_displayed()]


def header(browser, table, title):
    found = browser.find_elements("css selector", f"#{table} thead button")
    return next(each for each in found if each.text.startswith(title))


def test_surprises_come_first_with_their_source_line(browser):
    assert texts(browser, "h1, h2")[:2] == ["forward", "3 surprises"]
    first = browser.find_element("css selector", ".surprises li")
    assert first.rect["y"] + first.rect["height"] < 800
    assert "/home/ada/moe/layers.py:88 in apply" in first.text
    assert "wi is split on 'expert' but used replicated" in first.text


def test_a_surprise_leads_to_its_row_even_when_that_is_filtered_out(browser):
    field = browser.find_element("id", "find")
    field.send_keys("result")
    assert rows(browser, "collectives") == []
    browser.find_element("link text", "Show the collective").click()
    assert browser.find_element("css selector", "tr:target").get_attribute("id") == "collective-0"
    assert len(rows(browser, "collectives")) == 4


@pytest.mark.parametrize(
    ("table", "title", "once"),
    [
        ("collectives", "A device", [0, 1, 2, 3]),
        ("collectives", "Times", [1, 2, 0, 3]),
        ("collectives", "Kind", [0, 3, 1, 2]),
        ("values", "Name", [5, 0, 1, 2, 3, 6, 4, 7]),
        ("values", "A device", [1, 3, 0, 2, 4, 5, 7, 6]),
    ],
)
def test_headers_sort_and_sort_back(browser, table, title, once):
    ids = [f"{table.removesuffix('s')}-{i}" for i in once]
    header(browser, table, title).click()
    assert rows(browser, table) == ids
    header(browser, table, title).click()
    assert rows(browser, table)[0] in (ids[-1], ids[-2])
    order = browser.find_elements("css selector", f"#{table} th[aria-sort]")
    assert [each.text for each in order] == [title]


def test_sorting_works_from_the_keyboard(browser):
    from selenium.webdriver.common.keys import Keys

    header(browser, "collectives", "Times").send_keys(Keys.ENTER)
    assert rows(browser, "collectives")[0] == "collective-1"


@pytest.mark.parametrize(
    ("typed", "collectives", "values"),
    [
        ("ALL-TO-ALL group", ["collective-2"], []),
        ("['wo'] [1]", [], ["value-3"]),
        ("layers.py:52", ["collective-2"], ["value-5"]),
        ("xyz", [], []),
    ],
)
def test_filter_looks_through_both_tables(browser, typed, collectives, values):
    field = browser.find_element("id", "find")
    field.send_keys(typed)
    assert rows(browser, "collectives") == collectives
    assert rows(browser, "values") == values
    counted = f"{len(collectives)} of 4 collectives, {len(values)} of 8 values"
    assert texts(browser, "output") == [counted]
    field.clear()
    field.send_keys(" ")
    assert texts(browser, "output") == ["4 collectives, 8 values"]


def test_only_surprises(browser):
    browser.find_element("id", "flagged").click()
    assert rows(browser, "collectives") == ["collective-0"]
    assert rows(browser, "values") == ["value-1", "value-3"]


def test_nothing_is_asked_of_the_network_and_nothing_fails(browser, address):
    browser.get_log("performance")
    browser.get(address)
    browser.find_element("id", "find").send_keys("wi")
    events = [json.loads(each["message"])["message"] for each in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert address in asked
    assert [url for url in asked if url != address and not url.startswith("data:")] == []
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [400, 800, 1280])
def test_page_fits_the_screen(browser, width):
    screen(browser, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for table in browser.find_elements("css selector", ".wide"):
        wider = browser.execute_script(
            "return arguments[0].scrollWidth - arguments[0].clientWidth", table
        )
        assert wider <= 0 or width == 800  # there it scrolls by itself


def test_on_a_telephone_rows_are_cards_that_still_sort(browser):
    screen(browser, 400)
    first = browser.find_element("id", "collective-0")
    assert first.text.split("\n")[:2] == ["all-gather", "surprise"]
    label = "return getComputedStyle(arguments[0].cells[1], '::before').content"
    assert browser.execute_script(label, first) == '"Mesh axes"'
    header(browser, "collectives", "Times").click()
    assert rows(browser, "collectives") == [f"collective-{i}" for i in (1, 2, 0, 3)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(browser, scheme):
    emulate(browser, scheme)
    ratio, text = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, text


def test_page_is_readable_without_scripts(opened, address, tmp_path):
    driver = start(tmp_path / "profile", scripts=False)
    try:
        driver.get(address)
        assert len(rows(driver, "values")) == 8
        assert not driver.find_element("class name", "finder").is_displayed()
        assert driver.find_elements("css selector", "thead button") == []
    finally:
        driver.quit()


def test_page_of_a_layer_that_was_compiled(opened, tmp_path):
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from gshard_annotate import make_mesh
    from gshard_annotate.inspector.inspecting import inspect
    from gshard_moe import MoELayer

    definition, parameters = nnx.split(MoELayer(num_experts=8, embed=32, mlp=64, rngs=nnx.Rngs(0)))

    def loss(parameters, x_GSM):
        y_GSM, _ = nnx.merge(definition, parameters)(x_GSM, deterministic=True)
        return jnp.sum(y_GSM**2)

    mesh = make_mesh({"data": 2, "expert": 4})
    report = inspect(jax.grad(loss), parameters, jnp.ones((8, 16, 32)), mesh=mesh, chip="v3")
    screen(opened, 400)
    opened.get(report.write_html(tmp_path / "layer.html").as_uri())
    assert len(rows(opened, "values")) == len(report.values) > 10
    assert len(rows(opened, "collectives")) == len(report.exchanges) > 2
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 400
    screen(opened, 1280)
    for table in opened.find_elements("css selector", ".wide"):
        assert opened.execute_script("return arguments[0].scrollWidth", table) <= 1280
    assert opened.get_log("browser") == []


def test_page_of_a_difference(opened, tmp_path):
    screen(opened, 400)
    opened.get(diff(REPORT, EMPTIER).write_html(tmp_path / "diff.html").as_uri())
    assert texts(opened, "h2")[0] == "What changed"
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 400
    assert opened.get_log("browser") == []
    emulate(opened, "dark")
    ratio, text = opened.execute_script(CONTRAST)
    assert ratio >= 4.5, text
