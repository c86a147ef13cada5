"""The report's page in a browser: it sorts, filters, and asks for nothing outside itself."""

import json
import shutil

import pytest

from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.translations import Split, Task, Translation
from gshard_m4.languages import find
from gshard_m4.report import page

pytestmark = pytest.mark.slow

SOURCES = {
    "de": "rote Rose",
    "he": "ורד אדום",
    "ar": "وردة حمراء",
    "ja": "赤いバラ",
    "sw": "waridi",
}
# Of ten phrases each; Swahili has too few for the main average.
RIGHT = {"de": 4, "he": 9, "ar": 2, "ja": 6, "sw": 3}
ENGLISH = "a red rose in a vase"


def split(name):
    tasks = []
    for code, source in SOURCES.items():
        said = [ENGLISH if number < RIGHT[code] else "dog" for number in range(10)]
        rows = [Translation(i, source, ENGLISH, text, False) for i, text in enumerate(said)]
        rows = rows[: 5 if code == "sw" else 10]
        tasks.append(Task(f"m4_sample_{code}_en", find(code), tuple(rows)))
    return Split(name, {"beam_size": 4}, 2050, tuple(tasks))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    splits = [split("test"), split("unseen")]
    path = tmp_path_factory.mktemp("report") / "report.html"
    text = page(evaluate(splits, min_phrases=10), splits, command="gshard-m4 evaluate")
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


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
    """The page, freshly loaded."""
    opened.get(address)
    return opened


def texts(browser, selector):
    return [each.text for each in browser.find_elements("css selector", selector) if each.text]


def languages(browser):
    return texts(browser, "#set-test .scores tr[data-code] th")


def click_header(browser, title):
    (button,) = [
        each
        for each in browser.find_elements("css selector", "#set-test .scores thead button")
        if each.text.startswith(title)
    ]
    button.click()


def test_table_is_sorted_by_score_at_first_with_small_languages_apart(browser):
    assert languages(browser) == ["Hebrew", "Japanese", "German", "Arabic", "Swahili"]


@pytest.mark.parametrize(
    ("header", "once"),
    [
        ("Language", ["Arabic", "German", "Hebrew", "Japanese"]),
        ("Exact %", ["Hebrew", "Japanese", "German", "Arabic"]),
        ("chrF++", ["Arabic", "German", "Japanese", "Hebrew"]),
    ],
)
def test_headers_sort_within_each_group(browser, header, once):
    click_header(browser, header)
    assert languages(browser) == [*once, "Swahili"]
    click_header(browser, header)
    assert languages(browser) == [*reversed(once), "Swahili"]
    rows = texts(browser, "#set-test .scores tbody:first-of-type tr")
    assert [row.split()[0] for row in rows[-2:]] == ["Mean", "Median"]
    sorted_by = browser.find_elements("css selector", "#set-test .scores th[aria-sort]")
    assert [each.text.split()[0] for each in sorted_by] == [header.split()[0]]


def test_sorting_one_table_leaves_the_other(browser):
    click_header(browser, "Language")
    others = texts(browser, "#set-unseen .scores tr[data-code] th")
    assert others == ["Hebrew", "Japanese", "German", "Arabic", "Swahili"]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("ARAB", ["Arabic"]), ("jpan", ["Japanese"]), ("swahi sw", ["Swahili"]), ("xyz", [])],
)
def test_finder_filters_by_name_code_and_script(browser, typed, shown):
    field = browser.find_element("id", "find")
    field.send_keys(typed)
    assert languages(browser) == shown
    assert [name.split()[0] for name in texts(browser, "summary .name")] == shown
    assert texts(browser, "output") == [f"{len(shown)} of 5 languages"]
    field.clear()
    field.send_keys(" ")
    assert len(languages(browser)) == 5


def test_language_leads_to_its_examples_with_text_in_its_direction(browser):
    browser.find_element("link text", "Hebrew").click()
    cells = browser.find_elements("css selector", "details[open] td[lang=he]")
    assert len(cells) == 16
    assert all(cell.value_of_css_property("direction") == "rtl" for cell in cells)
    assert all(cell.value_of_css_property("text-align") == "right" for cell in cells)
    assert cells[0].text == SOURCES["he"]
    german = browser.find_element("css selector", "td[lang=de]")
    assert german.value_of_css_property("direction") == "ltr"


def test_nothing_is_asked_of_the_network_and_nothing_fails(browser, address):
    browser.get_log("performance")
    browser.get(address)
    browser.find_element("id", "find").send_keys("de")
    events = [json.loads(each["message"])["message"] for each in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert address in asked
    assert [url for url in asked if url != address and not url.startswith("data:")] == []
    assert browser.get_log("browser") == []


def test_page_fits_a_telephone(browser):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_page_is_readable_without_scripts(opened, address, tmp_path):
    driver = start(tmp_path / "profile", scripts=False)
    try:
        driver.get(address)
        assert languages(driver) == ["Hebrew", "Japanese", "German", "Arabic", "Swahili"]
        assert not driver.find_element("class name", "finder").is_displayed()
        assert driver.find_elements("css selector", "thead button") == []
        driver.get(f"{address}#language-ar")
        assert SOURCES["ar"] in texts(driver, "details[open] td[lang=ar]")
    finally:
        driver.quit()
