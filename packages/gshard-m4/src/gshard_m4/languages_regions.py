"""Regions in codes such as `pt-BR`; `gshard_m4.languages` reads both tables."""

_REGIONS = """
ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bl bm bn bo bq br bs
bt bv bw by bz ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee
eg eh er es et fi fj fk fm fo fr ga gb gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm
hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc
li lk lr ls lt lu lv ly ma mc md me mf mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na
nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw
sa sb sc sd se sg sh si sj sk sl sm sn so sr ss st sv sx sy sz tc td tf tg th tj tk tl tm tn to
tr tt tv tw tz ua ug um us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
an cs su uk xk yu
"""
REGIONS = frozenset(_REGIONS.split())
"""ISO 3166-1's two letters; the last line has those that locales had before or have as theirs."""

# Only regions whose letters are a language's too; regions that are none are never ambiguous.
_SPOKEN_IN = """
af  na za
am  et
ar  ae bh eg il iq km lb ly ma om ps sa sd so ss sy td tn ye
ay  bo pe
az  az
be  by
bg  bg
bho in
bn  bd in
bo  cn in
br  fr
brx in
bs  ba
ca  ad es fr it
co  fr
cs  cz
cy  gb
da  dk gl
de  at be ch it li lu
el  cy gr
eo  fr
es  ar bo cl co cr cu do ec gq gt mx ni pa pe ph pr py sv us uy ve
et  ee
eu  es fr
fa  af ir
ff  gn ml mr ne sn sl
fi  se
fr  be bi bj ca ch ci cm dj ga gn gp gq ht km lu ma mc mg ml mq mr mu nc ne pm re rw sc sn sy tg tn
fur it
fy  de nl
ga  ie gb
gd  gb
gl  es
gn  py
gsw ch fr li
gu  in
ha  ne ng gh
he  il
hi  in
hne in
hr  ba hr
hsb de
hy  am
id  id
ig  ng
it  ch sm va
kk  kz cn
kn  in
ko  kp kr
kok in
ks  in
ku  tr sy
la  va
lb  lu
lg  ug
li  nl
ln  cd cg
lo  la
mai in
mg  mg
mi  nz
mk  mk
ml  in
mn  mn cn
mni in
mr  in
ms  bn id my sg
mt  mt
nds de nl
ne  in np
nl  be bq sr
nn  no
no  no sj
nso za
oc  fr es
om  et ke
or  in
pa  in
ps  af pk
pt  ao br ch cv gq gw lu mo mz st tl
qu  bo ec pe
rm  ch
ro  md
ru  by kg kz md ua
rw  rw
sa  in
sat in
sc  it
scn it
sd  in
se  no se fi
sl  si it
sm  ws as
sn  zw
so  et dj ke
sq  al mk xk
sr  ba me
st  ls za
sv  fi se ax
sw  cd ke tz ug
szl pl
ta  in lk my sg
te  in
tg  tj
ti  et er
tk  tm
tr  cy
ts  za mz
tt  ru
ug  cn
ur  in pk
uz  uz af
ve  za
yi  il us
yo  bj ng
yue cn hk mo
zh  cn hk mo my sg tw
zu  za
"""
SPOKEN_IN = {
    code: tuple(regions) for code, *regions in map(str.split, _SPOKEN_IN.split("\n")[1:-1])
}
"""code -> regions that locales name with it (Unicode CLDR has such)."""
