use super::*;

#[test]
fn an_absence_begins_and_ends_once() {
    let mut absence = Absence::default();
    assert!(!absence.end() && !absence.is_on());
    assert!(absence.begin() && !absence.begin() && absence.is_on());
    assert!(absence.end() && !absence.end());
}

#[test]
fn words_are_repeated_once() {
    let mut absence = Absence::default();
    assert!(absence.is_owed(ItemId(3)));
    absence.repeats(ItemId(3));
    assert!(!absence.is_owed(ItemId(3)) && absence.is_owed(ItemId(4)));
}
