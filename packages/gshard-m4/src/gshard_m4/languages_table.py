"""The table of M4's 102 languages; `gshard_m4.languages` reads it.

Columns: code, English name, script (ISO 15924), branch of the language family, size, other codes.

Families and branches have their usual names in linguistics; `FAMILIES` has the branches of each.

The size is the number of tokens, in billions, that the language has in mC4, a crawl of the web in
nearly the same languages (Xue et al., arXiv 2010.11934, Table 6). It stands in for the size of M4's
training data, which was mined from the web as well and is not published per language (Arivazhagan
et al., arXiv 1907.05019, Figure 1, names a few). mC4 has neither Bosnian nor Croatian (-); by
the order of MADLAD-400 (Kudugunta et al., arXiv 2309.04662), which has Croatian next to Tamil and
Bosnian next to Uzbek, both are in the middle band.
"""

M4 = """
af  | Afrikaans       | Latn | Germanic          |  1.7 | afr
am  | Amharic         | Ethi | Semitic           |  0.3 | amh
ar  | Arabic          | Arab | Semitic           |   57 | ara arb
az  | Azerbaijani     | Latn | Turkic            |  4.4 | aze azj
be  | Belarusian      | Cyrl | Slavic            |    2 | bel
bg  | Bulgarian       | Cyrl | Slavic            |   22 | bul
bn  | Bengali         | Beng | Indo-Aryan        |  7.3 | ben
bs  | Bosnian         | Latn | Slavic            |    - | bos
ca  | Catalan         | Latn | Romance           |   13 | cat
ceb | Cebuano         | Latn | Malayo-Polynesian |  0.2 |
co  | Corsican        | Latn | Romance           |  0.2 | cos
cs  | Czech           | Latn | Slavic            |   63 | ces cze
cy  | Welsh           | Latn | Celtic            |  4.9 | cym wel
da  | Danish          | Latn | Germanic          |   29 | dan
de  | German          | Latn | Germanic          |  347 | deu ger
el  | Greek           | Grek | Hellenic          |   43 | ell gre
eo  | Esperanto       | Latn | constructed       |  0.7 | epo
es  | Spanish         | Latn | Romance           |  433 | spa
et  | Estonian        | Latn | Uralic            |  6.9 | est ekk
eu  | Basque          | Latn | isolate           |  1.4 | eus baq
fa  | Persian         | Arab | Iranian           |   52 | fas per pes
fi  | Finnish         | Latn | Uralic            |   25 | fin
fil | Filipino        | Latn | Malayo-Polynesian |  2.1 | tl tgl
fr  | French          | Latn | Romance           |  318 | fra fre
fy  | West Frisian    | Latn | Germanic          |  0.4 | fry
ga  | Irish           | Latn | Celtic            |  0.5 | gle
gd  | Scottish Gaelic | Latn | Celtic            |  0.4 | gla
gl  | Galician        | Latn | Romance           |  2.4 | glg
gu  | Gujarati        | Gujr | Indo-Aryan        |  0.8 | guj
ha  | Hausa           | Latn | Chadic            |  0.2 | hau
haw | Hawaiian        | Latn | Malayo-Polynesian | 0.09 |
he  | Hebrew          | Hebr | Semitic           |   17 | heb iw
hi  | Hindi           | Deva | Indo-Aryan        |   24 | hin
hmn | Hmong           | Latn | Hmong-Mien        |  0.2 | mww
hr  | Croatian        | Latn | Slavic            |    - | hrv scr
ht  | Haitian Creole  | Latn | creole            |  0.2 | hat
hu  | Hungarian       | Latn | Uralic            |   39 | hun
hy  | Armenian        | Armn | Armenian          |  2.4 | hye arm
id  | Indonesian      | Latn | Malayo-Polynesian |   69 | ind in
ig  | Igbo            | Latn | Volta-Niger       | 0.09 | ibo
is  | Icelandic       | Latn | Germanic          |  2.6 | isl ice
it  | Italian         | Latn | Romance           |  162 | ita
ja  | Japanese        | Jpan | Japonic           |  164 | jpn
jv  | Javanese        | Latn | Malayo-Polynesian |  0.3 | jav jw
ka  | Georgian        | Geor | Kartvelian        |  2.5 | kat geo
kk  | Kazakh          | Cyrl | Turkic            |  3.1 | kaz
km  | Khmer           | Khmr | Austroasiatic     |  0.6 | khm
kn  | Kannada         | Knda | Dravidian         |  1.1 | kan
ko  | Korean          | Kore | Koreanic          |   26 | kor
ku  | Kurdish         | Latn | Iranian           |  0.4 | kur kmr
ky  | Kyrgyz          | Cyrl | Turkic            |    1 | kir
la  | Latin           | Latn | Italic            |  1.3 | lat
lb  | Luxembourgish   | Latn | Germanic          |    1 | ltz
lo  | Lao             | Laoo | Kra-Dai           |  0.1 | lao
lt  | Lithuanian      | Latn | Baltic            |   11 | lit
lv  | Latvian         | Latn | Baltic            |    7 | lav lvs
mg  | Malagasy        | Latn | Malayo-Polynesian |  0.2 | mlg plt
mi  | Maori           | Latn | Malayo-Polynesian |  0.1 | mri mao
mk  | Macedonian      | Cyrl | Slavic            |  1.8 | mkd mac
ml  | Malayalam       | Mlym | Dravidian         |  2.7 | mal
mn  | Mongolian       | Cyrl | Mongolic          |  1.8 | mon khk
mr  | Marathi         | Deva | Indo-Aryan        |   14 | mar
ms  | Malay           | Latn | Malayo-Polynesian |   13 | msa may zsm zlm
mt  | Maltese         | Latn | Semitic           |  5.2 | mlt
my  | Burmese         | Mymr | Tibeto-Burman     |  0.9 | mya bur
ne  | Nepali          | Deva | Indo-Aryan        |  3.2 | nep npi
nl  | Dutch           | Latn | Germanic          |   73 | nld dut
no  | Norwegian       | Latn | Germanic          |   27 | nor nb nob
ny  | Nyanja          | Latn | Bantu             |  0.1 | nya
pa  | Punjabi         | Guru | Indo-Aryan        |  0.6 | pan
pl  | Polish          | Latn | Slavic            |  130 | pol
ps  | Pashto          | Arab | Iranian           |  0.4 | pus pbt pbu
pt  | Portuguese      | Latn | Romance           |  146 | por
ro  | Romanian        | Latn | Romance           |   52 | ron rum mo mol
ru  | Russian         | Cyrl | Slavic            |  713 | rus
sd  | Sindhi          | Arab | Indo-Aryan        |  1.6 | snd
si  | Sinhala         | Sinh | Indo-Aryan        |  0.8 | sin
sk  | Slovak          | Latn | Slavic            |   18 | slk slo
sl  | Slovenian       | Latn | Slavic            |  8.8 | slv
sm  | Samoan          | Latn | Malayo-Polynesian | 0.09 | smo
sn  | Shona           | Latn | Bantu             |  0.2 | sna
so  | Somali          | Latn | Cushitic          |  1.4 | som
sq  | Albanian        | Latn | Albanian          |    4 | sqi alb als
sr  | Serbian         | Cyrl | Slavic            |  4.3 | srp scc
st  | Southern Sotho  | Latn | Bantu             | 0.08 | sot
su  | Sundanese       | Latn | Malayo-Polynesian |  0.1 | sun
sv  | Swedish         | Latn | Germanic          |   45 | swe
sw  | Swahili         | Latn | Bantu             |    1 | swa swh
ta  | Tamil           | Taml | Dravidian         |  3.4 | tam
te  | Telugu          | Telu | Dravidian         |  1.3 | tel
tg  | Tajik           | Cyrl | Iranian           |  1.4 | tgk
th  | Thai            | Thai | Kra-Dai           |   11 | tha
tr  | Turkish         | Latn | Turkic            |   71 | tur
uk  | Ukrainian       | Cyrl | Slavic            |   41 | ukr
ur  | Urdu            | Arab | Indo-Aryan        |  2.4 | urd
uz  | Uzbek           | Latn | Turkic            |  0.9 | uzb uzn
vi  | Vietnamese      | Latn | Austroasiatic     |  116 | vie
xh  | Xhosa           | Latn | Bantu             | 0.06 | xho
yi  | Yiddish         | Hebr | Germanic          |  0.3 | yid ydd ji
yo  | Yoruba          | Latn | Volta-Niger       | 0.05 | yor
zh  | Chinese         | Hans | Sinitic           |   39 | zho chi cmn
zu  | Zulu            | Latn | Bantu             |  0.2 | zul
"""

FAMILIES = {
    "Indo-European": (
        "Albanian", "Armenian", "Baltic", "Celtic", "Germanic", "Hellenic", "Indo-Aryan", "Iranian",
        "Italic", "Romance", "Slavic",
    ),
    "Afro-Asiatic": ("Berber", "Chadic", "Cushitic", "Semitic"),
    "Austronesian": ("Malayo-Polynesian",),
    "Niger-Congo": ("Atlantic", "Bantu", "Gur", "Kwa", "Volta-Niger"),
    "Mande": ("Mande",),
    "Nilo-Saharan": ("Nilotic", "Saharan"),
    "Sino-Tibetan": ("Sinitic", "Tibeto-Burman"),
}  # fmt: skip
"""The branches of each family; what is in none of them is its own family."""
