"""What is wrong with a directory, prepared or as downloaded, all at once."""

from gshard_m4.doctor.checks import CHECKS as CHECKS
from gshard_m4.doctor.checks import Check as Check
from gshard_m4.doctor.checks import Finding as Finding
from gshard_m4.doctor.examine import Examination as Examination
from gshard_m4.doctor.examine import examine as examine
