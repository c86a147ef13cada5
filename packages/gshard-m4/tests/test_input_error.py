import pickle

from gshard_m4.evaluation.translations import TranslationsError
from gshard_m4.input_error import InputError


def test_an_error_comes_whole_out_of_another_process():
    for kind in (InputError, TranslationsError):
        copy = pickle.loads(pickle.dumps(kind(["one", "two"])))
        assert type(copy) is kind
        assert copy.faults == ("one", "two")
        assert str(copy) == "one\ntwo"
