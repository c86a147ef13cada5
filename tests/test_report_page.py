"""The report's pages in a browser: they sort, filter, and ask for nothing outside themselves."""

import json
import shutil
from dataclasses import replace

import pytest

from gshard_m4.evaluation.evaluate import changed, evaluate
from gshard_m4.evaluation.experts import Experts
from gshard_m4.evaluation.scores import Baseline
from gshard_m4.evaluation.translations import Split, Task, Translation
from gshard_m4.languages import LANGUAGES, find
from gshard_m4.report import comparison_page, page

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
    text = page(
        evaluate(splits, min_phrases=10, identify=False), splits, command="gshard-m4 evaluate"
    )
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


def whole(name, gain):
    """Scores of every language with training sizes, bands and a baseline; and the split."""
    codes = [language.code for language in LANGUAGES]
    tasks = tuple(
        Task(f"m4_x_{code}_en", find(code), (Translation(0, "x", ENGLISH, said, False),) * 2)
        for code, said in zip(codes, (ENGLISH, "a red rose") * len(codes), strict=False)
    )
    shares = dict.fromkeys(codes, ((0.25, 0.75, 0.0),) * 2)
    split = Split("test", {}, 1, tasks, Experts(("encoder layer 1", "encoder layer 3"), 3, shares))

    def sized(_, one):
        place = codes.index(one.code)
        band = "high" if place < 25 else "mid" if place < 77 else "low"
        delta = {} if one.code == "de" else {"chrfpp": gain + place % 7}
        return replace(one, train_rows=10**6 // (place + 1), band=band, delta=delta)

    scores = changed(evaluate([split], min_phrases=1, identify=False), sized)
    scores = replace(scores, name=name, baseline=Baseline("bilingual", "a table of numbers", {}))
    return scores, split


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Addresses of a page of 102 languages with everything, and of a comparison."""
    folder = tmp_path_factory.mktemp("pages")
    scores, split = whole("dense", -2.5)
    texts = {
        "all": page(scores, [split]),
        "compared": comparison_page([scores, whole("MoE(2048E,36L)", 4.0)[0]]),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in texts}


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
    """What is seen of the elements, asked for in one go: each question takes milliseconds."""
    script = """
      return [...document.querySelectorAll(arguments[0])]
        .filter((each) => each.checkVisibility())
        .map((each) => (each.innerText ?? each.textContent).trim());
    """
    return [text for text in browser.execute_script(script, selector) if text]


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
        ("BLEU", ["Hebrew", "Japanese", "German", "Arabic"]),
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
    assert [name.split()[0] for name in texts(browser, "details[data-find] summary .name")] == shown
    assert texts(browser, "output") == [f"{len(shown)} of 5 languages"]
    field.clear()
    field.send_keys(" ")
    assert len(languages(browser)) == 5


def test_language_leads_to_its_examples_with_text_in_its_direction(browser):
    browser.find_element("link text", "Hebrew").click()
    cells = browser.find_elements("css selector", "details[open] td[lang=he]")
    assert len(cells) == 22  # of two sets, eight phrases and the three worst each
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


def width_at(browser, width, address):
    """The width that the page takes on a telephone of that width."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(address)
        return browser.execute_script("return document.documentElement.scrollWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pages_fit_a_telephone(opened, address, pages):
    assert width_at(opened, 360, address) == 360
    assert width_at(opened, 360, pages["all"]) == 360
    assert width_at(opened, 360, pages["compared"]) == 360


@pytest.mark.parametrize(("width", "hint"), [(1200, "none"), (360, '"Wider than the screen')])
def test_pictures_wider_than_the_screen_say_so(opened, pages, width, hint):
    said = 'return getComputedStyle(document.querySelector(".scroller"), "::before").content'
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened.get(pages["all"])
        assert opened.execute_script(said).startswith(hint)
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def headers(browser):
    return [each.split("\n")[0] for each in texts(browser, "#set-test .scores thead th")]


def test_columns_are_shown_and_hidden(opened, pages):
    opened.get(pages["all"])
    assert "Not English %" not in headers(opened)  # no language was identified
    assert "Δ chrF++" in headers(opened)
    assert "Over-long %" not in headers(opened)
    opened.find_element("css selector", "#set-test .menu summary").click()
    labels = opened.find_elements("css selector", "#set-test .menu label")
    ticks = {label.text: label.find_element("tag name", "input") for label in labels}
    assert (ticks["Δ chrF++"].is_selected(), ticks["Over-long %"].is_selected()) == (True, False)
    ticks["Δ chrF++"].click()
    ticks["Over-long %"].click()
    assert "Δ chrF++" not in headers(opened)
    assert "Over-long %" in headers(opened)
    cells = texts(opened, "#set-test .scores tr[data-code=af] > *")
    assert len(cells) == len(headers(opened))


def test_most_training_text_comes_first_and_missing_numbers_last(opened, pages):
    opened.get(pages["all"])
    names = [language.name for language in LANGUAGES]
    assert languages(opened) == names
    for _ in range(2):
        click_header(opened, "Δ chrF++")
        assert languages(opened)[-1] == "German"
    click_header(opened, "Training")
    assert languages(opened) == names


def test_points_are_dimmed_by_the_filter_and_lead_to_examples(opened, pages):
    opened.get(pages["all"])
    script = "return document.querySelectorAll('[data-mark]:not(.dim)').length"
    whole_page = opened.execute_script(script)
    opened.find_element("id", "find").send_keys("yiddish")
    # In the trend, without smoothing and in the scatter; of two metrics, one without a baseline.
    assert (whole_page, opened.execute_script(script)) == (101 + 101 + 102 + 3 * 102, 6)
    opened.execute_script(
        "document.querySelector('[data-mark=yi]').dispatchEvent(new MouseEvent('click'))"
    )
    assert texts(opened, "details[open][data-find] summary .name") == ["Yiddish yi"]


def test_filter_finds_bands(opened, pages):
    opened.get(pages["all"])
    opened.find_element("id", "find").send_keys("high")
    assert languages(opened) == [language.name for language in LANGUAGES[:25]]


def test_pictures_are_drawn(opened, pages):
    opened.get(pages["all"])
    assert len(texts(opened, "svg .name")) > 102
    script = """
      const shown = [...document.querySelectorAll("svg")].filter((each) => each.checkVisibility());
      return shown.map((each) => each.querySelectorAll(".mark-point").length);
    """
    trend, scatter, heat = opened.execute_script(script)
    assert (trend, scatter, heat) == (101, 102, 0)
    sizes = opened.execute_script(
        "return [...document.querySelectorAll('.experts image.pixels')].map((each) => {"
        "  const image = new Image(); image.src = each.href.baseVal;"
        "  return image.decode().then(() => [image.naturalWidth, image.naturalHeight]); })"
        ".reduce((all, one) => all.then((found) => one.then((size) => [...found, size])),"
        "        Promise.resolve([]))"
    )
    assert sizes == [[3, 102], [3, 102]]
    unsmoothed = opened.find_element("xpath", "//summary[contains(., 'Without smoothing')]")
    unsmoothed.click()
    assert len(opened.execute_script(script)) == 4
    assert opened.get_log("browser") == []


def test_labels_of_102_languages_do_not_overlap(opened, pages):
    opened.get(pages["all"])
    boxes = opened.execute_script("""
      const found = [];
      for (const each of document.querySelectorAll("svg")) {
        if (!each.checkVisibility()) continue;
        found.push([...each.querySelectorAll("text")].map((text) => {
          const box = text.getBoundingClientRect();
          return [box.left, box.top, box.right, box.bottom];
        }));
      }
      return found;
    """)
    trend, scatter, heat = map(len, boxes)
    assert min(trend, heat) > 102
    assert scatter > 20
    for picture in boxes:
        for number, one in enumerate(picture):
            for other in picture[:number]:
                across = min(one[2], other[2]) - max(one[0], other[0])
                down = min(one[3], other[3]) - max(one[1], other[1])
                assert min(across, down) < 3.5  # boxes are taller than their letters


def test_comparison_sorts_and_filters(opened, pages):
    opened.get(pages["compared"])
    assert len(languages(opened)) == 102
    click_header(opened, "Language")
    assert languages(opened)[0] == "Afrikaans"
    opened.find_element("id", "find").send_keys("hebr")
    assert languages(opened) == ["Hebrew", "Yiddish"]
    assert [each.text for each in opened.find_elements("css selector", ".legend li")][:2] == [
        "dense",
        "MoE(2048E,36L)",
    ]
    assert opened.get_log("browser") == []


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
