"""Every code of the public sets that people bring: found, or refused with the right reason."""

import pytest

from gshard_m4 import languages

# FLORES-200 (NLLB Team, arXiv 2207.04672; github.com/facebookresearch/flores, flores200/README.md).
FLORES_200 = """
    ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab
    arb_Arab arb_Latn ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab
    azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn
    bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn
    cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn
    eus_Latn ewe_Latn fao_Latn fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn
    gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn
    hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn
    kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn
    kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kmr_Latn kon_Latn kor_Hang lao_Laoo
    lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn luo_Latn
    lus_Latn lvs_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Arab min_Latn mkd_Cyrl plt_Latn
    mlt_Latn mni_Beng khk_Cyrl mos_Latn mri_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva
    nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pes_Arab
    pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva
    sat_Olck scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn
    sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn
    tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn
    tsn_Latn tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn
    urd_Arab uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant
    zho_Hans zho_Hant zsm_Latn zul_Latn
"""
# OPUS-100 (Zhang et al., arXiv 2004.11867; opus.nlpl.eu/opus-100.php), sides not in English.
OPUS_100 = """
    af am an ar as az be bg bn br bs ca cs cy da de dz el eo es et eu fa fi fr fy ga gd gl gu ha
    he hi hr hu hy id ig is it ja ka kk km kn ko ku ky li lt lv mg mk ml mn mr ms mt my nb ne nl
    nn no oc or pa pl ps pt ro ru rw se sh si sk sl sq sr sv ta te tg th tk tr tt ug uk ur uz vi
    wa xh yi yo zh zu
"""
# NTREX-128 (github.com/MicrosoftTranslator/NTREX, names of the files in NTREX-128/).
NTREX_128 = """
    afr amh arb aze-Latn bak bel bem ben bod bos bul cat ces ckb-Arab cym dan deu div dzo ell
    eng eng-GB eng-IN eng-US est eus ewe fao fas fij fil fin fra fra-CA fuc gle glg guj hau heb
    hin hmn hrv hun hye ibo ind isl ita jpn kan kat kaz khm kin kir kmr kor lao lav lit ltz mal
    mar mey mkd mlg mlt mon mri msa mya nde nep nld nno nob nso nya orm pan pol por por-BR prs
    pus ron rus shi sin slk slv smo sna-Latn snd-Arab som spa spa-MX sqi srp-Cyrl srp-Latn ssw
    swa swe tah tam tat tel tgk-Cyrl tha tir ton tsn tuk tur uig ukr urd uzb ven vie wol xho yor
    yue zho-CN zho-TW zul
"""


def refusal(code: str) -> str:
    """Why a code is refused: variant, outside, English, or '' for a language of M4."""
    try:
        languages.find(code)
    except ValueError as error:
        reasons = {
            "keep the two apart": "variant",
            "not one of M4's 102; --any-language (others=True) takes it": "outside",
            "is English, which all are translated into": "English",
        }
        return next(kind for reason, kind in reasons.items() if reason in str(error))
    return ""


@pytest.mark.parametrize(
    ("codes", "m4", "outside", "variants", "english"),
    [
        (FLORES_200, 97, 104, ["arb_Latn", "zho_Hant"], ["eng_Latn"]),
        (OPUS_100, 84, 15, [], []),
        (NTREX_128, 93, 29, ["srp-Latn", "zho-TW"], ["eng", "eng-GB", "eng-IN", "eng-US"]),
    ],
    ids=["FLORES-200", "OPUS-100", "NTREX-128"],
)
def test_every_code_is_found_or_refused_with_its_reason(codes, m4, outside, variants, english):
    reasons = {code: refusal(code) for code in codes.split()}
    assert [code for code, reason in reasons.items() if reason == "variant"] == variants
    assert [code for code, reason in reasons.items() if reason == "English"] == english
    assert list(reasons.values()).count("") == m4
    assert list(reasons.values()).count("outside") == outside


@pytest.mark.parametrize("codes", [FLORES_200, OPUS_100, NTREX_128])
def test_with_variants_and_others_every_code_but_english_has_an_entry(codes):
    found = {
        code: languages.find(code, variants=True, others=True)
        for code in codes.split()
        if not languages.is_english(code)
    }
    shared = {"nob": "no", "no": "no", "nb": "no"}
    regions = {"fra-CA", "por-BR", "spa-MX"}
    own = {code: one.code for code, one in found.items() if code not in (*shared, *regions)}
    assert len(set(own.values())) == len(own)
    assert all(languages.find(c, variants=True, others=True).code == c for c in own.values())


def test_scripts_of_flores_are_those_of_the_entries():
    for code in FLORES_200.split():
        if code not in ("eng_Latn", "kor_Hang"):
            found = languages.find(code, variants=True, others=True)
            assert found.script == code[4:]


def test_languages_of_m4_that_each_set_lacks():
    lacking = {
        "FLORES-200": "co fy haw hmn la",
        "OPUS-100": "ceb co fil haw hmn ht jv la lb lo mi ny sd sm sn so st su sw",
        "NTREX-128": "ceb co eo fy gd haw ht jv la st su yi",
    }
    for codes, lacks in zip((FLORES_200, OPUS_100, NTREX_128), lacking.values(), strict=True):
        has = {languages.find(code).code for code in codes.split() if not refusal(code)}
        assert sorted(one.code for one in languages.LANGUAGES if one.code not in has) == (
            lacks.split()
        )
