"""Which packages of the Debian archive hold translations, how each kind is read, and its licence.

A row is one kind of package. Names are exact, or regular expressions where they start with `^`. The
licence is that of the programs as the packages' own copyright files state it; `extract` keeps each
package's file and names the licences in it, which are what counts.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Collection:
    """Packages that one reader understands.

    Attributes:
        name: short name, the origin of every row with the package's.
        reader: name of a function in `gshard_m4.debian.readers`.
        licence: what the copyright files of these packages say, in short.
        packages: names, or regular expressions that start with `^`.
        english: the package with the English side, where each language is a package of its own.
        without: packages that match but are not read.
        files: regular expression of the files inside a package that are read.
    """

    name: str
    reader: str
    licence: str
    packages: tuple[str, ...]
    files: str
    english: str = ""
    without: str = ""


DESCRIPTION_LANGUAGES = (
    "en", "cs", "da", "de", "es", "fi", "fr", "hu", "it", "ja", "ko", "nl", "pl", "pt", "pt_BR",
    "ru", "sk", "sr", "sv", "tr", "uk", "vi", "zh_CN", "zh_TW",
)  # fmt: skip
"""Languages whose package descriptions are worth a download: the others have a few hundred."""

_PROGRAMS = """
vlc-l10n gimp-data evolution-common cinnamon-l10n libgtk-3-common digikam-data gnucash-common
pidgin-data krita-l10n libgtk2.0-common plasma-workspace-data audacity-data calligrasheets-data
gnome-control-center-data wordpress-l10n gnumeric-common caja-common nautilus-data k3b-i18n
dia-common libgtk-4-common pluma-common filezilla-common kio orca calligra-data
evolution-data-server-common plasma-desktop-data libglib2.0-data kmail gedit-common kate5-data
epiphany-browser-data konversation-data rhythmbox-data shotwell-common python3-django kig krusader
kwin-data ktorrent-data kf5-messagelib-data gthumb-data mate-utils-common mate-panel-common
kleopatra konqueror gnome-disk-utility umbrello-data mate-control-center-common network-manager
geany-common kalarm picard aisleriot gnome-shell-common gnome-terminal-data mate-terminal-common
gnome-applets-data seahorse dolphin minetest-data gnome-settings-daemon-common mate-applets-common
plasma-nm gnome-panel-data gnome-calculator synaptic konsole korganizer evince-common totem-common
kdepim-addons lokalize atril-common marco-common engrampa-common transmission-gtk eog
mate-calc-common sugar-session gnome-system-monitor file-roller libkf5khtml-data geary eom-common
python3-sepolgen mate-desktop-common gedit-plugins-common lomiri-system-settings onboard-common
mate-system-monitor-common mate-settings-daemon-common libgdk-pixbuf2.0-common konq-plugins
gnome-nettool mutter-common lomiri-clock-app muffin-common vala-panel-common libwnck-3-common
gnome-chess libkf5xmlgui-data deja-dup at-spi2-common libwnck-common kde-cli-tools-data
gnome-dictionary metacity-common kinfocenter python3-django-postorius morph-browser
kde-style-oxygen-qt5 yelp libkf5textwidgets-data cheese-common libkf5newstuff-data
libsugarext-data mate-session-manager gnome-font-viewer gnome-bluetooth-common
libkf5configwidgets-data gnome-bluetooth-3-common drkonqi kio-extras-data gdm3
libgnomecanvas2-common caja-extensions-common gnome-session-common gnome-nibbles kfind mate-menu
gnome-robots tali baobab four-in-a-row iagno lomiri-filemanager-app mate-tweak isomaster
mate-media-common quadrapassel libmatemixer-common gnome-screenshot ukui-media-common gnome-mines
gnome-sudoku lomiri-music-app go-for-it kdialog libmatekbd-common lomiri-docviewer-app swell-foop
mate-menus slick-greeter ukwm-common asunder gnome-menus ukui-menus libkf5jsembed-data
sugar-chat-activity mintstick policycoreutils easyssh mate-notification-daemon-common
pluma-plugins-common libkf5kcmutils-data ayatana-indicator-session libkf5parts-data kross mozo
qml-module-lomiri-settings-components libgranite-common libkf5service-data sugar-browse-activity
sugar-write-activity sugar-calculate-activity sugar-read-activity sugar-pippy-activity
sugar-jukebox-activity sugar-log-activity sugar-memorize-activity sugar-imageviewer-activity
"""
_GETTEXT = r"\.mo$"

COLLECTIONS = (
    Collection(
        "gettext", "gettext", "GPL-2+, GPL-3+, LGPL-2+, MIT, BSD by package",
        tuple(_PROGRAMS.split()), _GETTEXT,
    ),
    Collection(
        "libreoffice", "gettext", "MPL-2.0", ("^libreoffice-l10n-.*",), _GETTEXT,
    ),
    Collection(
        "libreoffice-help", "libreoffice_help", "MPL-2.0", ("^libreoffice-help-.*",),
        r"/help/[^/]+/text/.*\.html$", english="libreoffice-help-en-us",
        without="^libreoffice-help-(en-.*|common)",
    ),
    Collection(
        "firefox", "mozilla", "MPL-2.0", ("^firefox-esr-l10n-.*",), r"\.xpi$",
        english="firefox-esr-l10n-en-gb", without="^firefox-esr-l10n-(en-.*|all)",
    ),
    Collection(
        "thunderbird", "mozilla", "MPL-2.0", ("^thunderbird-l10n-.*",), r"\.xpi$",
        english="thunderbird-l10n-en-gb", without="^thunderbird-l10n-(en-.*|all)",
    ),
    Collection(
        "mediawiki", "mediawiki", "GPL-2+, MIT by extension", ("mediawiki",),
        r"/i18n/.*\.json$",
    ),
    Collection(
        "gnome-help", "mallard", "CC-BY-SA-3.0", ("gnome-user-docs",), r"/help/.*\.page$",
    ),
    Collection(
        "wesnoth", "gettext", "GPL-2+",
        ("^wesnoth-[0-9.]*-(httt|nr|low|tsg|sotbe|sof|sota|dm|did|ei|thot|ttb|dw|l|utbs)",),
        _GETTEXT,
    ),
)  # fmt: skip

DESCRIPTIONS = Collection(
    "descriptions", "descriptions", "free by the Debian Free Software Guidelines, as all of main",
    (), r"_i18n_Translation-[^/]+$",
)  # fmt: skip
"""Descriptions of Debian's own packages, from the indexes that apt downloads."""
