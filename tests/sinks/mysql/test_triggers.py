"""Which triggers may change the rows, and who may see them."""

from __future__ import annotations

import pytest

from twophase.sinks.mysql.table import Trigger
from twophase.sinks.mysql.triggers import has_trigger_right, may_change

FILLED = ["id", "V", "two words"]
BODIES = {
    "SET NEW.created = NOW()": False,
    "SET NEW.created = NOW(), NEW.by_whom = USER()": False,
    "SET NEW.search = LOWER(NEW.v)": False,
    "SET NEW.search = NEW.v, NEW.n = NEW.id": False,
    "SET NEW.n = NEW.v = 'x'": False,
    "IF NEW.v = 'x' THEN SET NEW.kind = 1; END IF": False,
    "BEGIN DECLARE v INT; SET v = 1; SET NEW.n = v; END": False,
    "INSERT INTO audit VALUES (NEW.id, NEW.v)": False,
    "INSERT INTO audit SET id = NEW.id": False,
    "INSERT INTO audit SELECT NEW.id, NEW.v": False,
    "BEGIN SELECT p INTO @p FROM items WHERE id = NEW.id; SET NEW.price = @p; END": False,
    "BEGIN SELECT p, q INTO @p, @q FROM items WHERE id = NEW.id; SET NEW.price = @p; END": False,
    "BEGIN CALL counts(@n); SET NEW.n = @n + NEW.id; END": False,
    "BEGIN SET @s = 'SET NEW.v = 1'; /* SET NEW.v = 1 */ SET NEW.n = 1; END": False,
    "BEGIN -- SET NEW.v = 1\n# SET NEW.v = 1\nSET NEW.n = 1; END": False,
    "SET NEW.n = CONCAT('it''s', NEW.v)": False,
    "SET NEW.v = 'changed'": True,
    "set new.v=1": True,
    "SET NEW . `v` = 1": True,
    'SET NEW."v" = 1': True,
    "SET `NEW`.`two words` := 1": True,
    "SET NEW.created = NOW(), NEW.v = 1": True,
    "SET @a = 'x', NEW.v := 1": True,
    "SET /* of the row */ NEW.id = 1": True,
    "IF NEW.n = 1 THEN SET NEW.v = 1; END IF": True,
    "BEGIN :NEW.v := 1; END": True,
    "SELECT 1 INTO NEW.v": True,
    "SELECT 1, 2 INTO @a, NEW.v": True,
    "FETCH c INTO a, NEW.v": True,
    "CALL changes(NEW.v)": True,
    "CALL changes(1, NEW.v)": True,
    "GET DIAGNOSTICS CONDITION 1 NEW.v = MESSAGE_TEXT": True,
    "SET @s = 'a\\'; SET NEW.n = 1; '": True,
    "/*!50000 SET NEW.v = 1 */": True,
    "/*M!100000 SET NEW.v = 1 */": True,
    "SET NEW.n = '--', NEW.v = 1": True,
    "SET NEW.n = '/*', NEW.v = '*/'": True,
    "SET NEW.n = \"it's\", NEW.v = 'x'": True,
    "SET NEW.n = 1-- 1\n, NEW.v = 1": True,
    "SET NEW.n = 5--1, NEW.v = 1": True,
}


@pytest.mark.parametrize(("body", "expected"), BODIES.items())
def test_a_trigger_may_change_the_columns_that_it_assigns(body: str, *, expected: bool) -> None:
    assert may_change(Trigger("s", "t", "BEFORE", body), FILLED) is expected
    assert not may_change(Trigger("s", "t", "AFTER", body), FILLED)
    assert not may_change(Trigger("s", "t", "BEFORE", "SET NEW.v = 1"), ["id"])


def test_a_trigger_whose_statement_is_not_shown_may_change_any_column() -> None:
    assert may_change(Trigger("s", "t", "BEFORE", None), FILLED)


EVERYWHERE = "GRANT SELECT, TRIGGER ON *.* TO `app`@`%`"


# as MySQL shows the rights of an account, with those of its roles
@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        (["GRANT USAGE ON *.* TO `app`@`%`", "GRANT `r`@`%` TO `app`@`%`"], False),
        (["GRANT SELECT, TRIGGER ON `my_shop`.* TO `app`@`%`"], True),
        (["GRANT ALL PRIVILEGES ON `my_shop`.* TO `app`@`%` WITH GRANT OPTION"], True),
        (["GRANT SELECT, INSERT ON `my_shop`.* TO `app`@`%`"], False),
        (["GRANT TRIGGER ON `my_shop`.`or``ders` TO `app`@`%`"], True),
        (["GRANT SELECT (`TRIGGER`, `a)`), TRIGGER ON `my_shop`.`or``ders` TO `app`@`%`"], True),
        (["GRANT SELECT (`a`, TRIGGER) ON `my_shop`.`or``ders` TO `app`@`%`"], False),
        (["GRANT TRIGGER ON `my_shop`.`others` TO `app`@`%`"], False),
        (["GRANT TRIGGER ON `my\\_shop`.* TO `app`@`%`"], True),
        (["GRANT TRIGGER ON `my\\_%`.* TO `app`@`%`"], True),
        (["GRANT TRIGGER ON `%`.* TO `app`@`%`"], True),
        (["GRANT TRIGGER ON `my.shop`.* TO `app`@`%`"], False),
        (["GRANT TRIGGER ON `my_sho`.* TO `app`@`%`"], False),
        (["GRANT TRIGGER ON `%`.`or``ders` TO `app`@`%`"], False),
        ([EVERYWHERE], True),
        ([EVERYWHERE, "REVOKE TRIGGER ON `my_shop`.* FROM `app`@`%`"], False),
        ([EVERYWHERE, "REVOKE TRIGGER ON `other`.* FROM `app`@`%`"], True),
        ([EVERYWHERE, "REVOKE SELECT ON `my_shop`.* FROM `app`@`%`"], True),
        ([EVERYWHERE, "REVOKE TRIGGER ON `my_shop`.* FROM `app`@`%`",
            "GRANT TRIGGER ON `my_shop`.`or``ders` TO `app`@`%`"], True),
        (["GRANT TRIGGER ON PROCEDURE `my_shop`.`or``ders` TO `app`@`%`"], False),
        (["GRANT PROXY ON ''@'' TO 'root'@'localhost' WITH GRANT OPTION"], False),
    ],
)  # fmt: skip
def test_the_right_to_see_triggers_is_found_wherever_it_comes_from(
    grants: list[str], *, expected: bool
) -> None:
    assert has_trigger_right(grants, "my_shop", "or`ders") is expected
