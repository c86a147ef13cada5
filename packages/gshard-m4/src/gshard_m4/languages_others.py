"""Languages outside M4 that public sets have; `gshard_m4.languages` reads it.

Those of OPUS-100, FLORES-200, NTREX-128 and the larger ones of free software's translations.
Columns: code (Unicode CLDR's), English name, script (ISO 15924), branch of the language family,
other codes. The script is the one of those sets: Tashelhit is in Arabic letters in NTREX-128.
"""

OTHERS = """
ab  | Abkhaz                  | Cyrl | Northwest Caucasian | abk
ace | Acehnese                | Latn | Malayo-Polynesian   |
ach | Acholi                  | Latn | Nilotic             |
acm | Mesopotamian Arabic     | Arab | Semitic             |
acq | Ta'izzi-Adeni Arabic    | Arab | Semitic             |
aeb | Tunisian Arabic         | Arab | Semitic             |
ajp | South Levantine Arabic  | Arab | Semitic             |
ak  | Akan                    | Latn | Kwa                 | aka
an  | Aragonese               | Latn | Romance             | arg
apc | North Levantine Arabic  | Arab | Semitic             |
ars | Najdi Arabic            | Arab | Semitic             |
ary | Moroccan Arabic         | Arab | Semitic             |
arz | Egyptian Arabic         | Arab | Semitic             |
as  | Assamese                | Beng | Indo-Aryan          | asm
ast | Asturian                | Latn | Romance             |
awa | Awadhi                  | Deva | Indo-Aryan          |
ay  | Aymara                  | Latn | Aymaran             | aym ayr
azb | South Azerbaijani       | Arab | Turkic              |
ba  | Bashkir                 | Cyrl | Turkic              | bak
ban | Balinese                | Latn | Malayo-Polynesian   |
bcl | Central Bikol           | Latn | Malayo-Polynesian   |
bem | Bemba                   | Latn | Bantu               |
bho | Bhojpuri                | Deva | Indo-Aryan          | bh bih
bjn | Banjar                  | Latn | Malayo-Polynesian   |
bm  | Bambara                 | Latn | Mande               | bam
bo  | Tibetan                 | Tibt | Tibeto-Burman       | bod tib
br  | Breton                  | Latn | Celtic              | bre
brx | Bodo                    | Deva | Tibeto-Burman       |
bug | Buginese                | Latn | Malayo-Polynesian   |
cak | Kaqchikel               | Latn | Mayan               |
ce  | Chechen                 | Cyrl | Northeast Caucasian | che
cjk | Chokwe                  | Latn | Bantu               |
ckb | Central Kurdish         | Arab | Iranian             |
crh | Crimean Tatar           | Latn | Turkic              |
csb | Kashubian               | Latn | Slavic              |
cv  | Chuvash                 | Cyrl | Turkic              | chv
dik | Southwestern Dinka      | Latn | Nilotic             |
diq | Zazaki                  | Latn | Iranian             | zza
doi | Dogri                   | Deva | Indo-Aryan          | dgo
dsb | Lower Sorbian           | Latn | Slavic              |
dv  | Dhivehi                 | Thaa | Indo-Aryan          | div
dyu | Dyula                   | Latn | Mande               |
dz  | Dzongkha                | Tibt | Tibeto-Burman       | dzo
ee  | Ewe                     | Latn | Kwa                 | ewe
ff  | Fula                    | Latn | Atlantic            | ful
fj  | Fijian                  | Latn | Malayo-Polynesian   | fij
fo  | Faroese                 | Latn | Germanic            | fao
fon | Fon                     | Latn | Kwa                 |
frp | Franco-Provençal        | Latn | Romance             |
frr | North Frisian           | Latn | Germanic            |
fuc | Pulaar                  | Latn | Atlantic            |
fur | Friulian                | Latn | Romance             |
fuv | Nigerian Fulfulde       | Latn | Atlantic            |
gn  | Guarani                 | Latn | Tupian              | grn gug
gom | Goan Konkani            | Deva | Indo-Aryan          |
gsw | Swiss German            | Latn | Germanic            |
gv  | Manx                    | Latn | Celtic              | glv
hil | Hiligaynon              | Latn | Malayo-Polynesian   |
hne | Chhattisgarhi           | Deva | Indo-Aryan          |
hsb | Upper Sorbian           | Latn | Slavic              |
ia  | Interlingua             | Latn | constructed         | ina
ie  | Interlingue             | Latn | constructed         | ile
ilo | Ilocano                 | Latn | Malayo-Polynesian   |
inh | Ingush                  | Cyrl | Northeast Caucasian |
io  | Ido                     | Latn | constructed         | ido
kab | Kabyle                  | Latn | Berber              |
kac | Jingpho                 | Latn | Tibeto-Burman       |
kam | Kamba                   | Latn | Bantu               |
kbp | Kabiye                  | Latn | Gur                 |
kea | Kabuverdianu            | Latn | creole              |
kg  | Kongo                   | Latn | Bantu               | kon
ki  | Kikuyu                  | Latn | Bantu               | kik
kmb | Kimbundu                | Latn | Bantu               |
knc | Central Kanuri          | Latn | Saharan             |
kok | Konkani                 | Deva | Indo-Aryan          |
krc | Karachay-Balkar         | Cyrl | Turkic              |
ks  | Kashmiri                | Arab | Indo-Aryan          | kas
ksh | Colognian               | Latn | Germanic            |
kw  | Cornish                 | Latn | Celtic              | cor
lfn | Lingua Franca Nova      | Latn | constructed         |
lg  | Ganda                   | Latn | Bantu               | lug
li  | Limburgish              | Latn | Germanic            | lim
lij | Ligurian                | Latn | Romance             |
lmo | Lombard                 | Latn | Romance             |
ln  | Lingala                 | Latn | Bantu               | lin
ltg | Latgalian               | Latn | Baltic              |
lua | Luba-Kasai              | Latn | Bantu               |
luo | Luo                     | Latn | Nilotic             |
lus | Mizo                    | Latn | Tibeto-Burman       |
lzh | Literary Chinese        | Hant | Sinitic             |
mag | Magahi                  | Deva | Indo-Aryan          |
mai | Maithili                | Deva | Indo-Aryan          |
mdf | Moksha                  | Cyrl | Uralic              |
mey | Hassaniya Arabic        | Arab | Semitic             |
mhr | Meadow Mari             | Cyrl | Uralic              | chm
min | Minangkabau             | Latn | Malayo-Polynesian   |
mni | Meitei                  | Beng | Tibeto-Burman       |
mos | Mossi                   | Latn | Gur                 |
myv | Erzya                   | Cyrl | Uralic              |
nan | Min Nan Chinese         | Latn | Sinitic             |
nap | Neapolitan              | Latn | Romance             |
nd  | North Ndebele           | Latn | Bantu               | nde
nds | Low German              | Latn | Germanic            |
nn  | Norwegian Nynorsk       | Latn | Germanic            | nno
nqo | N'Ko                    | Nkoo | Mande               |
nr  | South Ndebele           | Latn | Bantu               | nbl
nso | Northern Sotho          | Latn | Bantu               |
nus | Nuer                    | Latn | Nilotic             |
oc  | Occitan                 | Latn | Romance             | oci
om  | Oromo                   | Latn | Cushitic            | orm gaz
or  | Odia                    | Orya | Indo-Aryan          | ori ory
os  | Ossetian                | Cyrl | Iranian             | oss
pag | Pangasinan              | Latn | Malayo-Polynesian   |
pap | Papiamento              | Latn | creole              |
pms | Piedmontese             | Latn | Romance             |
pnb | Western Punjabi         | Arab | Indo-Aryan          |
prs | Dari                    | Arab | Iranian             |
qu  | Quechua                 | Latn | Quechuan            | que quy quz
rm  | Romansh                 | Latn | Romance             | roh
rn  | Rundi                   | Latn | Bantu               | run
rue | Rusyn                   | Cyrl | Slavic              |
rw  | Kinyarwanda             | Latn | Bantu               | kin
sa  | Sanskrit                | Deva | Indo-Aryan          | san
sah | Yakut                   | Cyrl | Turkic              |
sat | Santali                 | Olck | Austroasiatic       |
sc  | Sardinian               | Latn | Romance             | srd
scn | Sicilian                | Latn | Romance             |
sco | Scots                   | Latn | Germanic            |
se  | Northern Sami           | Latn | Uralic              | sme
sg  | Sango                   | Latn | creole              | sag
sh  | Serbo-Croatian          | Latn | Slavic              | hbs
shi | Tashelhit               | Arab | Berber              |
shn | Shan                    | Mymr | Kra-Dai             |
skr | Saraiki                 | Arab | Indo-Aryan          |
son | Songhay                 | Latn | Songhay             |
ss  | Swati                   | Latn | Bantu               | ssw
szl | Silesian                | Latn | Slavic              |
taq | Tamasheq                | Latn | Berber              |
ti  | Tigrinya                | Ethi | Semitic             | tir
tk  | Turkmen                 | Latn | Turkic              | tuk
tn  | Tswana                  | Latn | Bantu               | tsn
to  | Tongan                  | Latn | Malayo-Polynesian   | ton
tpi | Tok Pisin               | Latn | creole              |
trs | Chicahuaxtla Triqui     | Latn | Oto-Manguean        |
ts  | Tsonga                  | Latn | Bantu               | tso
tt  | Tatar                   | Cyrl | Turkic              | tat
tum | Tumbuka                 | Latn | Bantu               |
tw  | Twi                     | Latn | Kwa                 | twi
ty  | Tahitian                | Latn | Malayo-Polynesian   | tah
tyv | Tuvan                   | Cyrl | Turkic              |
tzm | Central Atlas Tamazight | Tfng | Berber              |
udm | Udmurt                  | Cyrl | Uralic              |
ug  | Uyghur                  | Arab | Turkic              | uig
umb | Umbundu                 | Latn | Bantu               |
ve  | Venda                   | Latn | Bantu               | ven
vec | Venetian                | Latn | Romance             |
vep | Veps                    | Latn | Uralic              |
vo  | Volapük                 | Latn | constructed         | vol
wa  | Walloon                 | Latn | Romance             | wln
war | Waray                   | Latn | Malayo-Polynesian   |
wo  | Wolof                   | Latn | Atlantic            | wol
wuu | Wu Chinese              | Hans | Sinitic             |
xal | Kalmyk                  | Cyrl | Mongolic            |
xmf | Mingrelian              | Geor | Kartvelian          |
yue | Cantonese               | Hant | Sinitic             |
"""
