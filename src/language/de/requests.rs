//! The built-in assistant in German: what it understands and what it says.

use super::numbers::normalise;
use super::words::{DAYS, MONTHS};
use crate::language::grammar::{Day, Grammar, Reader};
use crate::language::request::Talk;
use crate::language::wording::{self, Sum, Wording, capitalised};
use serde_json::{Map, Value};
use std::sync::LazyLock;
use std::time::Duration;

static GRAMMAR: Grammar = Grammar {
    again: r"^(?:(?:okay|ok|ja|gut|danke|ach|ah) )*(?:(?:und )?(?:was ist mit|wie (?:ist|sieht|steht) es(?: denn| dann| mit)?)|und|(?:(?:nein|entschuldigung) )*ich (?:meinte|meine)) (?P<rest>.+?)(?: aus)?$",
    leads: "äh+m?|ähm|also|so|okay|ok|gut|hallo|hi|hey|guten tag|guten morgen|guten abend|ja|bitte|danke|entschuldigung|entschuldigen sie|und|dann|jetzt|nun|mal|sag mal|sagen sie mal|sag mir|sagen sie mir|kannst du mir sagen|können sie mir sagen|könntest du mir sagen|könnten sie mir sagen|weißt du|wissen sie|ich wüsste gerne?|ich würde gerne? wissen|ich möchte wissen|undertone|computer",
    tails: "bitte|danke|mal|denn|dann|doch|eigentlich|gerade|jetzt|gerade jetzt|momentan|im moment|aktuell|so|für mich|bitte sehr",
    refused: r"\b(?:nicht|kein|keine|keinen|lass das|lassen sie das|vergiss|(?:obwohl|aber|lieber) nein)\b|\b(?:lass|lassen sie) es(?: (?:sein|bleiben|gut sein|lieber|doch|bitte|mal))*$|[^r] nein(?: danke)?$",
    asides: &[
        r" (?P<aside>(?:damit|sodass|so dass|weil) (?:[\p{L}']+ )+?(?:nicht|kein|keine|keinen) [\p{L}' ]+)$",
        r" (?P<aside>um (?:[\p{L}']+ )*?(?:nicht|kein|keine|keinen) (?:[\p{L}']+ )*?(?:zu \p{L}+n|\p{L}+zu\p{L}+n))$",
        r"^(?P<aside>(?:damit|weil|um) (?:[\p{L}']+ )*?(?:nicht|kein|keine|keinen) (?:[\p{L}']+ )+?)(?:stell|stelle|stellen sie|setz|setze|setzen sie|starte|starten sie|mach|mache|machen sie|erinner|erinnere|erinnern sie|weck|wecke|wecken sie|kannst du|könntest du|können sie|könnten sie|brauche ich|bräuchte ich|hätte ich gern)\b",
        r"(?:^| )(?P<aside>(?:wenn|falls) (?:es|das) (?:(?:dir|ihnen) )?(?:nicht|keine) (?:(?:zu )?viele? )?(?:stört|ausmacht|mühe macht|umstände macht))\b",
        r"^ich weiß (?:(?:leider|gerade|gar|auch|noch) )?(?P<aside>nicht )wie ?(?:spät|viel uhr) es\b",
    ],
    revokes: r"\b(?:nein|nee|ne|nö|ach|oh|doch nicht|lieber nicht|besser nicht|lass|lasse|vergiss|stopp?|halt|warte|warten sie|moment|abbrechen|brich|aber|obwohl|sondern|egal|quatsch|lösche?|beende|nicht (?:sicher|weiß)|weiß nicht)\b|\b(?:will|wollen|möchten?|brauchen?) (?:\S+ ){0,2}(?:nicht|kein)|\b(?:das|es|ihn|den|sie) (?:\S+ )?nicht (?:mehr )?(?:will|wollen|möchten?|brauchen?)\b",
    talk: &[
        (
            "hallo|hi|hey|guten tag|guten morgen|guten abend|grüß gott|servus|moin|hallo zusammen|(?:hallo )?(?:kannst du|können sie) mich hören|hören sie mich|hörst du mich|(?:hallo )?(?:sind sie|bist du|ist (?:da|dort) jemand|ist jemand)(?: noch)?(?: da)?",
            Talk::Greeting,
        ),
        (
            "wie geht es (?:dir|ihnen)|wie gehts|wie geht's|wie geht s|alles klar bei (?:dir|ihnen)",
            Talk::HowAreYou,
        ),
        (
            "(?:(?:alles klar|in ordnung|sehr gut|gut|super|prima|perfekt|toll|wunderbar|schön) )*(?:danke|danke schön|dankeschön|vielen dank|danke sehr|besten dank)(?: für (?:die|den|das|deinen?|ihren?|alles)(?: (?:hilfe|timer|wecker|auskunft|antwort|information|erinnerung|geduld|mühe|hinweis))?)?",
            Talk::Thanks,
        ),
        (
            "(?:(?:okay|ok|gut|alles klar|super|prima|perfekt|und|dann|ich muss (?:jetzt )?(?:los|weg|auflegen)|(?:nein )?(?:danke|danke schön|dankeschön|vielen dank|danke sehr|danke dir|danke ihnen|besten dank|herzlichen dank)(?: für (?:die|deine|ihre|alles)(?: hilfe)?)?) )*(?:tschüss|tschüs|tschüssi|auf wiedersehen|auf wiederhören|ciao|bis (?:bald|dann|später|morgen|nachher|nächste woche|nächstes mal|zum nächsten mal)|mach's gut|mach s gut|(?:nein )?(?:das war's|das war s|das wars|das wär's|das wär s|das wärs|das (?:war|wäre) alles)|gute nacht|(?:ich wünsche (?:dir|ihnen) )?(?:noch )?(?:einen? )?(?:schönen (?:tag|abend|nachmittag)|schönes wochenende)(?: noch)?|leg auf|legen sie auf)(?: (?:(?:und|dann) )*(?:tschüss|tschüs|tschüssi|auf wiedersehen|auf wiederhören|ciao|bis (?:bald|dann|später|morgen|nachher|nächste woche|nächstes mal|zum nächsten mal)|mach's gut|mach s gut|(?:nein )?(?:das war's|das war s|das wars|das wär's|das wär s|das wärs|das (?:war|wäre) alles)|gute nacht|(?:ich wünsche (?:dir|ihnen) )?(?:noch )?(?:einen? )?(?:schönen (?:tag|abend|nachmittag)|schönes wochenende)(?: noch)?|leg auf|legen sie auf|(?:danke|danke schön|dankeschön|vielen dank|danke sehr|danke dir|danke ihnen|besten dank|herzlichen dank)(?: für (?:die|deine|ihre|alles)(?: hilfe)?)?))*",
            Talk::Goodbye,
        ),
        (
            "wer bist du|wer sind sie|wie heißt du|wie heißen sie|was bist du|(?:bist du|sind sie) (?:ein|eine) (?:mensch|roboter|maschine|computer|ki|bot)|(?:bist du|sind sie) echt|wer hat (?:dich|sie) (?:gemacht|gebaut|programmiert|entwickelt)",
            Talk::WhoAreYou,
        ),
        (
            "was kannst du(?: alles| tun| machen)?|was können sie(?: alles| tun| machen)?|hilfe|womit können sie mir helfen|wobei kannst du mir helfen",
            Talk::Capabilities,
        ),
        (
            "wie bitte|was|(?:bitte )?(?:noch ?mal|noch einmal)(?: bitte)?|wiederhol das|wiederhole das|wiederholen sie das|können sie das wiederholen|kannst du das wiederholen|(?:kannst du|können sie|könntest du|könnten sie) das (?:bitte )?(?:noch ?mal|noch einmal) sagen|sag das noch ?mal|sagen sie das noch ?mal|(?:(?:das|es|sie|dich) )?(?:hab|habe) ich (?:(?:sie|dich|das|es|jetzt|leider|gerade|eben|akustisch) )*nicht (?:(?:ganz|richtig|gut|genau|so) )*(?:verstanden|gehört|mitbekommen|mitgekriegt)|ich (?:hab|habe) (?:(?:sie|dich|das|es|jetzt|leider|gerade|eben|akustisch) )*nicht (?:(?:ganz|richtig|gut|genau|so) )*(?:verstanden|gehört|mitbekommen|mitgekriegt)|(?:das |es )?(?:verstehe|versteh) ich (?:leider )?nicht|ich (?:verstehe|versteh|höre|hör) (?:(?:sie|dich|das|es) )?(?:(?:leider|gerade|kaum|so) )*(?:nicht|nichts|schlecht)(?: gut| richtig)?|(?:leider )?nicht verstanden|was (?:haben sie|hast du)(?: gerade| da| eben)? gesagt|wie war das",
            Talk::Repeat,
        ),
        (
            "ja(?: bitte| gerne?)?|jawohl|genau|klar|okay|ok|gerne|alles klar|in ordnung|verstanden|sehr gut|gut|super|prima|perfekt|toll|wunderbar|schön",
            Talk::Yes,
        ),
        ("nein|nee|nö|nein danke", Talk::No),
        (
            "stopp|stop|halt|sei still|ruhe|hör auf|hören sie auf|vergiss es|vergessen sie es|schon gut|abbrechen|moment(?: mal)?|warte(?: kurz| mal| bitte)*|warten sie(?: kurz| mal| bitte)*",
            Talk::Stop,
        ),
        (
            "(?:(?:nein|sorry|ach) )?(?:(?:nur )?(?:einen?|ein) )?(?:moment|augenblick|sekunde)(?: bitte| mal)*|(?:sorry )?(?:nur )?eine minute(?: bitte)?",
            Talk::Wait,
        ),
    ],
    time: r"\b(?:wie spät|wie ?viel uhr|welche uhrzeit|die uhrzeit|uhrzeit)\b",
    elsewhen: r"\b(?:um|bis|ab|gegen|seit|vor|nach|zu) (?:wie ?viel uhr|welcher? uhrzeit)\b|\b(?:in|vor|nach) (?:\d+(?:\.\d+)?|eine[rnm]?|ein paar) (?:\p{L}+ )?(?:stunden?|minuten?|sekunden?|tage?n?|wochen?)\b",
    date: r"\b(?:welche[rn] (?:tag(?: der woche)?|wochentag|monat)|was für ein (?:wochen)?tag|welches datum|was für ein datum|(?:das |dem )?datum|den wievielten|der wievielte|welches jahr)\b",
    date_words: &[
        "am",
        "bitte",
        "das",
        "den",
        "denn",
        "der",
        "des",
        "die",
        "du",
        "es",
        "für",
        "haben",
        "hat",
        "ist",
        "kannst",
        "können",
        "lautet",
        "mir",
        "nenn",
        "nenne",
        "nennen",
        "noch",
        "sag",
        "sagen",
        "schreiben",
        "sein",
        "sie",
        "uns",
        "vom",
        "von",
        "was",
        "wie",
        "wird",
        "wir",
    ],
    past: &["war", "waren", "hatten"],
    today: r"\b(?:heute (?:morgen|früh|vormittag|mittag|nachmittag|abend|nacht)|heute|heutige[nrs]?|jetzt|gerade|im moment|aktuelle[nrs]?|aktuell)\b",
    other_days: &[
        (r"\bübermorgen\b", 2, "Übermorgen"),
        (r"\bvorgestern\b", -2, "Vorgestern"),
        (r"\b(?:gestern|gestrige[nrs]?)\b", -1, "Gestern"),
        (r"\b(?:morgen|morgige[nrs]?)\b", 1, "Morgen"),
    ],
    weekdays: [
        "montag",
        "dienstag",
        "mittwoch",
        "donnerstag",
        "freitag",
        "samstag|sonnabend",
        "sonntag",
    ],
    near_weekday: ("(?:am|nächste[nr]?|kommende[nr]?|diese[nr]?) ", ""),
    long_time: r"\b(?:\d+|stunden?|tage?n?|wochen?|wochenende|monat(?:en?|s)?|jahr(?:en?|es)?)\b",
    place: r"\b(?:in|auf|bei|für) (?:der |den |dem )?(?P<place>[\p{L}' ]+?)(?: ist es| es ist| regnen| schneien)?$",
    no_place: "ist|sind|war|waren|wird|werden|wurde|hat|haben|hatte|es|regnet|regnen|schneit|schneien|scheint|das|die sonne|die uhrzeit|die temperatur|eine?n?|wie|was|wann|wo|wer|ob|dass|wenn|weil|aber|ich|wir|dir|euch|ihnen|uns|gerade|jetzt|heute|momentan|aktuell|zurzeit|zur zeit|im moment|draußen|eigentlich|denn|so|wohl|überhaupt|noch|auch|schon|schön|schlecht|warm|kalt|heiß|kühl|sonnig|windig|neblig|bewölkt|glatt|regen|schnee|gewitter|regenschirm|schirm",
    there: r"\b(?:dort|da)\b",
    // No "Oldtimer".
    timer: r"\b(?:(?:\p{L}{2,}[a-ce-zäöüß])?timer|wecker|kurzzeitwecker|countdown|eieruhr|küchenuhr)\b|\bweck(?:e|en sie)? mich\b|\berinner(?:e|n sie|n)? mich\b|\bmich (?:\S+ ){0,12}erinnern\b|(?:^|\b(?:mir|uns) (?:\S+ ){0,2})in \d+ (?:stunden?|minuten?|sekunden?) bescheid\b",
    reminds: r"\berinner(?:e|n sie|n)? mich\b|\bmich (?:\S+ ){0,12}erinnern\b",
    asks: r"^(?:(?:um|bis|seit|in|ab) )?(?:wann|wie lange|wie ?viele?|wie weit|welche[rns]?)\b|^(?:ist|sind|läuft|laufen|habe? ich|gibt es|bleibt|bleiben|was ist mit|was macht|was sagt)\b|\bwie (?:lange|viel) (?:noch|läuft|geht|dauert|bleibt)\b",
    rest: r"^(?:wie lange|wie ?viel zeit|wie ?viele minuten)(?: (?:ist|sind|hab|habe|ich|bleibt|bleiben|dauert|läuft|geht|es|er|das|mir|uns))* (?:noch|übrig)(?: übrig)?$",
    corrects: r"^(?:(?:moment|bitte|äh) )*(?:(?:nein|nee|doch|ach|sorry|entschuldigung|ich (?:meinte|meine|sagte|wollte)|mach(?:en sie)?|daraus|lieber|eher|besser)(?: bitte| äh)* )+(?:(?:auf|für) )?(?P<length>.+?)(?: (?:bitte|lieber|stattdessen|daraus|draus))*$",
    takes_back: r"(?:(?:nein|nee|nö|doch|ach|sorry|halt|stopp) )*(?:abbrechen|abbruch|(?:brich|breche|brechen sie) (?:das|es|ihn|den)(?: bitte| wieder)* ab|(?:lösch|lösche|löschen sie|stopp|stoppe|stoppen sie|beende|beenden sie|storniere|stornieren sie) (?:das|es|ihn|den)(?: wieder)?|(?:das|ihn|den)(?: bitte| wieder)* (?:abbrechen|löschen|stoppen|beenden)|(?:mach|machen sie|schalt|schalten sie|stell|stellen sie) (?:das|ihn|den)(?: bitte| wieder)* (?:aus|ab|rückgängig)|(?:vergiss|vergessen sie|lass|lassen sie) (?:es|das)(?: sein)?|(?:lieber |doch )+nicht(?: mehr)?)",
    unneeded: r"\b(?:ich|wir) (?:brauche?|brauchen|benötigen?|will|wollen|möchten?) (?:den|die|diesen|meinen) (?:\S+ ){0,3}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:\S+ ){0,4}(?:nicht mehr|doch nicht)$|\b(?:ich|wir) (?:brauche?|brauchen|benötigen?) (?:den|die|diesen|meinen) (?:\p{L}*timer|wecker) nicht$|^(?:den|die|diesen|meinen) (?:\S+ ){0,3}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:\S+ ){0,4}(?:brauche?|brauchen|benötigen?) (?:ich|wir) (?:(?:doch|jetzt|auch) )?nicht(?: mehr)?$|\b(?:ich|wir) (?:brauche?|brauchen|benötigen?) (?:\S+ ){0,2}keine[nr]? (?:\S+ )?(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) mehr$|^(?:nein )?(?:der|die|dieser|meine?) (?:\S+ ){0,3}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:\S+ ){0,4}(?:wird|werden|ist|sind) (?:\S+ )?nicht mehr (?:gebraucht|benötigt|nötig)$",
    keeps: r"\b(?:behalt\p{L}*|lass|lasse|lassen|lasst)\b",
    wonders: r"^(?:warum|wieso|weshalb|wozu|wer)\b|\bich erinnere mich\b|\b(?:ich (?:\S+ )?|an )mich (?:\S+ ){0,12}erinnern\b|\b(?:gibt|sagt|gab|sagte)\b.* bescheid\b",
    tells: r"\b(?:habe?|hast|hat|haben|habt) (?:\S+ ){0,4}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:\S+ ){0,8}(?:gestellt|gesetzt|gestartet|eingestellt|eingerichtet|programmiert)\b|^(?:\S+ )?(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:habe?|hast|hat|haben|habt) (?:\S+ ){0,8}(?:gestellt|gesetzt|gestartet|eingestellt|eingerichtet|programmiert)\b|\b(?:gestern|vorgestern|vorhin|neulich|früher|damals|immer|meistens|oft|manchmal|normalerweise|gewöhnlich|üblicherweise|ständig|täglich|nie|niemals|jedes ?mal|jede[ns]? (?:tag|morgen|abend|nacht|woche)|letzte[ns]? (?:woche|nacht|mal|monat|jahr))\b.* (?:stell(?:e|en|t|te|ten)|setz(?:e|en|t|te|ten)|start(?:e|en|et|ete)|mach(?:e|en|t|te|ten)|nehmen?|nimmt|nahm|benutz(?:e|en|t|te)|habe?n?|hat|hatten?|war|waren|lief|klingelte?)\b|\b(?:stell(?:e|en|t|te|ten)|setz(?:e|en|t|te|ten)|start(?:e|en|et|ete)|mach(?:e|en|t|te|ten)|nehmen?|nimmt|nahm|benutz(?:e|en|t|te)|habe?n?|hat|hatten?|war|waren|lief|klingelte?) (?:.* )?(?:gestern|vorgestern|vorhin|neulich|früher|damals|immer|meistens|oft|manchmal|normalerweise|gewöhnlich|üblicherweise|ständig|täglich|nie|niemals|jedes ?mal|jede[ns]? (?:tag|morgen|abend|nacht|woche)|letzte[ns]? (?:woche|nacht|mal|monat|jahr))\b|\b(?:stellt|stellte|stellten|setzte|setzten|startete|starteten)\b|\b(?:setzt|startet|hatten?) (?:\S+ ){0,5}(?:einen|den|meinen|seinen|ihren) (?:\S+ )?(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr)\b|\b(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:(?:schon|ja|aber|doch) )?(?:war|waren|hat|ist|sind|wurde|klingelte|klingelt|lief|ging)\b|\b(?:steht|sagt|sagte|meint|meinte|schreibt|erzählt|erzählte|behauptet)(?: \S+){0,8} (?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr)\b|\b(?:wenn|falls|sobald) (?:ich|man|er|wir) (?:\S+ ){0,6}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:\S+ ){0,6}(?:stelle|stellt|stellen|setze|setzt|setzen|starte|startet|starten)\b|\bob (?:ich|man|er|wir) (?:\S+ ){0,6}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr)\b",
    own_acts: r"\bich (?:\p{L}+ ){0,2}?(?:stelle|setze|starte|mache|erstelle|richte|schalte|aktiviere|programmiere)\b|\b(?:stelle|setze|starte|mache|erstelle|richte|schalte|aktiviere|programmiere) (?:ich|er|sie|man)\b|\b(?:wenn|falls|sobald) (?:ich|man) (?:\S+ ){0,12}?(?:stelle|setze|starte|mache|erstelle|richte|schalte|aktiviere|programmiere)\b|^(?:(?:noch|mal|nochmals?|wieder|auch|ein|einen|den|gleichen|selben|neue[rn]?|anderen?|\d\S*|stunden?|minuten?|sekunden?) )*(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr) (?:(?:auf|für|von|über|mit) \d\S* \p{L}+ (?:und \d\S* \p{L}+ )?)?(?:habe?n?|hast|hat|hatten?|war|waren|ist|sind|wurde|stelle|stellt|stellten?)\b",
    wishes: r"\b(?:mach|mache|machen sie|erstell|erstelle|erstellen sie|richte|richten sie|schalt|schalte|schalten sie|aktivier|aktiviere|aktivieren sie|programmier|programmiere|programmieren sie|leg|lege|legen sie|füg|füge|fügen sie|gib|geben sie|lass|lassen sie|weck|wecke|wecken sie|erinner|erinnere|erinnern sie)\b|^(?:stellt|setzt|startet)\b|\b(?:kannst|könntest|würdest|magst|willst|stellst|machst|gibst|startest) du\b|\bdu (?:kannst|könntest|sollst|solltest)\b|\b(?:kann|könnte|darf) ich (?:\S+ ){0,8}(?:haben|bekommen|kriegen)\b|\b(?:können|könnten|würden) sie\b|\b(?:ich|wir) (?:\p{L}+ ){0,2}(?:brauche?|brauchen|bräuchten?|benötigen?)\b|\b(?:brauche?|brauchen|bräuchten?|benötigen?) (?:ich|wir)\b|^(?:brauche?|bräuchte|möchte)\b|\b(?:ich|wir) (?:will|wollen|möchten?) (?:\S+ ){0,3}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr)\b|\b(?:möchten?|will|wollen) (?:ich|wir) (?:\S+ ){0,3}(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr)\b|\bhätten? (?:\S+ ){0,2}gern\b|\bhätten? (?:\S+ ){0,2}gerne\b|\bob (?:ich|wir) (?:\S+ ){0,8}(?:haben|bekommen) (?:kann|können|könnten?|darf|dürfte)\b|\b(?:stellen|setzen|starten|haben) (?:könnten?|würden?)\b|\bbitte\b|^(?:(?:noch|mal|nochmals?|wieder|auch|ein|einen|den|gleichen|selben|neue[rn]?|anderen?|\d\S*|stunden?|minuten?|sekunden?) )*(?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr)\b|\b(?:noch einen?|nochmals?) (?:auf|für|von|über|mit|\d)|\b(?:also|deshalb|darum) (?:noch )?einen (?:\p{L}*timer|wecker|countdown|eieruhr|küchenuhr)\b|\bwie (?:immer|üblich|sonst|gewohnt|gestern|vorhin|neulich|letztes mal|jeden (?:tag|morgen|abend))\b",
    orders: r"\b(?:stell|stelle|stellen sie|setz|setze|setzen sie|starte|starten sie)\b",
    // An infinitive after "zu" or "zum" is what a new timer is for.
    changes: r"\b(?:(?:verlänger|verkürz|erhöh|reduzier|änder|veränder)e?|(?:verlängert|verkürzt|geändert) werden)\b|[^\sum] (?:verlängern|verkürzen|erhöhen|reduzieren|ändern|verändern)\b|^(?:verlängern|verkürzen|erhöhen|reduzieren|ändern|verändern) sie\b|\b(?:dem|zum|meinem) (?:timer|wecker|countdown)\b.* (?:hinzu|hinzufügen|dazu|dazugeben|drauf|mehr)\b|\b(?:stunden?|minuten?|sekunden?) (?:(?:vom|zum|von dem|von meinem) (?:timer|wecker|countdown)\b|länger\b|kürzer\b|mehr (?:auf|für|zu) (?:den|dem|meinen|meinem)\b)",
    cancel: r"\b(?:stopp|stop|stoppe|stoppen|lösch|lösche|löschen|beende|beenden|abbrechen|brich|breche|brechen|entferne|entfernen|storniere|stornieren|ausschalten|ausmachen|ausstellen|abstellen|abschalten)\b|\b(?:mach|mache|machen|schalt|schalte|schalten|stell|stelle|stellen)\b.* (?:aus|ab)$|^(?:(?:den|die|alle|meinen|meine) )?(?:timer|wecker) (?:aus|ab|weg)$|\bkann weg$",
    list: r"\b(?:liste|zeig|zeige|zeigen|nenn|nenne|nennen|auflisten|anzeigen|laufende[nr]?)\b|\b(?:timer|wecker) (?:läuft|laufen)\b",
    all: r"\b(?:alle|beide|sämtliche|jeden)\b",
    time_of_day: r"\b(?:um|gegen|bis) (?:(?:halb|viertel|viertel vor|viertel nach|dreiviertel|kurz vor|kurz nach) )?\d{1,2}(?: \d{1,2})?(?: uhr)?\b|\b(?:auf|für) \d{1,2}(?:[ .]\d{1,2})? uhr\b|\b(?:auf|für) (?:halb|viertel|viertel vor|viertel nach|dreiviertel) \d{1,2}\b|\bweck.*\b(?:auf|für) \d{1,2}(?: \d{1,2})?$|\b(?:morgen|übermorgen|mittag|mitternacht|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|sonnabends?)\b|\b(?:am|für den|zum) \d{1,2}(?:\.\d{1,2})?(?:\.\d{2,4})?\b",
    weather: r"\b(?:wetter|wettervorhersage|regnet es|wird es (?:\p{L}+ ){0,5}(?:regnen|schneien)|schneit es|wie (?:warm|kalt|heiß) (?:ist|wird)|wie ?viel grad (?:hat|sind|ist) es|(?:brauche?|muss|soll|sollte) ich (?:\p{L}+ ){0,6}(?:regenschirm|schirm)|ob es (?:\p{L}+ ){0,5}(?:regnet|schneit|regnen|schneien))\b|^scheint (?:\p{L}+ ){0,2}die sonne\b|^ist es (?:\p{L}+ ){0,5}(?:warm|kalt|heiß|kühl|sonnig|windig|neblig|bewölkt|glatt)\b|^gibt es (?:\p{L}+ ){0,5}(?:regen|schnee|gewitter)\b",
    reports: r"\bwetter (?:\S+ ){0,5}(?:ist|war|wird|wurde|gefällt|bleibt|macht|soll|hat|hatte)\b|\b(?:war|hatten?|wurde) (?:\S+ ){0,5}wetter\b|\b(?:ich|wir) (?:liebe|lieben|mag|mögen|hasse|hassen|genieße|genießen|vermisse|vermissen)\b|\bgefällt\b",
    enquires: r"\b(?:wie|was|ob|welche[rns]?)\b|^(?:ist|wird|soll|bleibt)\b",
    no_forecast: r"\b(?:übermorgen|gestern|vorgestern|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend|sonntag|wochenende|wochen?|tagen|stunden?|monat|nächste[nrs]?|kommende[nrs]?|januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember|ostern|weihnachten|silvester|neujahr)\b|\b(?:am|den|zum|vom|bis) (?:\d{1,2}(?:\.\d{1,2})?|ersten|zweiten|dritten|vierten|fünften|sechsten|siebten|achten|neunten|elften|zwölften|\p{L}*zehnten|\p{L}+zigsten|\p{L}*dreißigsten)\b|\b\d{1,2}\.\d{1,2}\.\d{2,4}\b",
    days: &[
        (
            r"\b(?:für )?heute (?:am )?(?:morgen|früh|vormittag|mittag|nachmittag|abend|nacht|in der nacht)\b",
            "today",
        ),
        (
            r"\b(?:für )?morgen(?: (?:am )?(?:früh|vormittag|mittag|nachmittag|abend|nacht|in der nacht))?\b",
            "tomorrow",
        ),
        (
            r"\b(?:für )?heute\b|\bin der nacht\b|\bam (?:vormittag|mittag|nachmittag|abend)\b",
            "today",
        ),
    ],
    before_length: &["auf", "für", "von", "in", "über", "und", "nach"],
    within_length: &["und", "plus", "äh", "ähm"],
    labels: &[
        r"\berinner(?:e|n sie|n)? mich (?:(?:an|daran) )?(?:die |den |das |meine |meinen |mein )?(?P<label>\p{L}+(?: \p{L}+){0,4})$",
        r"\b(?:an|daran) (?:die |den |das |meine |meinen |mein )?(?P<label>\p{L}+(?: \p{L}+){0,4}?) (?:zu )?erinnern$",
        r"\bfür (?:die |den |das |meine |meinen |mein )?(?P<label>\p{L}+(?: \p{L}+)??)(?: (?:aus|ab|an|abbrechen|beenden|löschen|stoppen|stellen|setzen|starten|machen|ausmachen|ausschalten))*$",
        r"\b(?:namens|genannt|mit (?:dem )?namen) (?P<label>\p{L}+)",
        r"\b(?:den|dem|der|einen|ein|meinen|mein|deinen|ihren|diesen) (?P<label>\p{L}+) (?:timer|wecker)\b",
        r"\b(?P<label>\p{L}{2,}[a-ce-zäöüß])timer\b",
    ],
    no_labels: &[
        "aktuellen",
        "alten",
        "anderen",
        "countdown",
        "dritten",
        "einzigen",
        "ersten",
        "gleichen",
        "gestellten",
        "kleinen",
        "koch",
        "kurzen",
        "kurzzeit",
        "küchen",
        "langen",
        "laufenden",
        "letzten",
        "neuen",
        "nächsten",
        "weiteren",
        "zusätzlichen",
        "zweiten",
    ],
    lengths: &[
        (
            r"\b(?:(?:eine|einer|ne|ner) )?dreiviertel ?stunde\b|\b3 ?viertel ?stunden?\b",
            "45 minuten",
        ),
        (
            r"\b(?:(?:eine|einer|ne|ner) )?viertel ?stunde\b",
            "15 minuten",
        ),
        (
            r"\b(?:(?:eine|einer|ne|ner) )?halbe[nr]? stunde\b",
            "30 minuten",
        ),
        (
            r"\b(?:(?:eine|einer|ne|ner) )?halbe[nr]? minute\b",
            "30 sekunden",
        ),
        (
            r"\b(?:eine?|einer|eines|ne|ner|1) (stunde|minute|sekunde)\b",
            "1 $1",
        ),
        (
            r"\b(\d+) stunden? und eine halbe\b",
            "$1 stunden 30 minuten",
        ),
        // "Eine Stunde dreißig", if no unit follows.
        (
            r"\b(\d+) stunden? (?:und )?(\d{1,2})( (?:für|an|ab|aus|lang|stellen|setzen|starten|laufen)\b|$)",
            "$1 stunden $2 minuten$3",
        ),
        (
            r"\b(\d+) minuten? (?:und )?(\d{1,2})( (?:für|an|ab|aus|lang|stellen|setzen|starten|laufen)\b|$)",
            "$1 minuten $2 sekunden$3",
        ),
        // "Einen auf fünf und einen auf zehn Minuten", "fünf, zehn und fünfzehn Minuten".
        (
            r"\b(\d+) und ((?:(?:noch|dann|auch) )*(?:(?:einen|einer|eine|ein|den|der)(?: anderen?| zweiten?| weiteren?)? )?(?:für (?:die |den |das )?\p{L}+ )?(?:(?:auf|für|von|über|mit) )?\d+) (stunden?|minuten?|sekunden?)\b",
            "$1 $3 und $2 $3",
        ),
        (
            r"\b(\d+) (\d+) (stunden?|minuten?|sekunden?) und\b",
            "$1 $3 $2 $3 und",
        ),
        (
            r"\b(\d+) (stunden?|minuten?|sekunden?) und ((?:noch )?(?:einen|einer|eine)(?: anderen?| zweiten?| weiteren?)? (?:auf|für|von|über|mit) \d+)( (?:stellen|setzen|starten)\b|$)",
            "$1 $2 und $3 $2$4",
        ),
    ],
    several: r"\b(?:(?P<count>[2-9]|1\d)|mehrere|beide) (?:\p{L}+ )?(?:timer|wecker|countdowns)\b|\bund (?:(?:noch|dann|auch) )*(?:einen|einer|eine)\b",
    units_of_time: ["stunden?|std", "minuten?|min", "sekunden?|sek"],
    sum: r"^(?:(?:was|wie ?viel) (?:ist|sind|ergibt|macht|gibt)(?: denn)?|(?:berechne|berechnen sie|rechne|rechnen sie)(?: (?:bitte|mal|mir|doch|kurz))*|was kommt heraus bei) (?P<sum>.+?)(?: aus)?$",
    operations: &[
        (r"\b(?:euros?|dollars?|franken|cents?)\b|€", ""),
        (r"\b(?:prozent|%) (?:von|aus)\b", "% of"),
        (r"(\d) ?% ?(?:von|aus|of)\b", "$1% of"),
        (
            r"\b(?:der |die )?(?:quadrat)?wurzel (?:aus|von) (\d+(?:\.\d+)?)",
            "sqrt($1)",
        ),
        (r"\b(?:zum|im) quadrat\b", "^ 2"),
        (r"\bhoch\b", "^"),
        (r"\b(?:geteilt|dividiert) durch\b|\bdurch\b", "/"),
        (r"\b(?:multipliziert mit|mal)\b|×", "*"),
        (r"\b(?:plus|und)\b", "+"),
        (r"\b(?:minus|weniger)\b", "-"),
        (r"\b(?:die hälfte von)\b", "0.5 *"),
        (r"\b(?:das doppelte von)\b", "2 *"),
    ],
    conversions: &[
        r"^(?:wie ?viele?|was) (?:grad )?(?P<to>\p{L}+) (?:sind|entsprechen|entspricht|ist|hat|haben|ergeben) (?P<value>-?\d+(?:\.\d+)?|ein|eine) (?:grad )?(?P<from>\p{L}+)$",
        r"^(?:wie ?viel|was) (?:sind|ist) (?P<value>-?\d+(?:\.\d+)?|ein|eine) (?:grad )?(?P<from>\p{L}+) in (?:grad )?(?P<to>\p{L}+)$",
        r"^(?:rechne|rechnen sie|konvertiere|wandle) (?P<value>-?\d+(?:\.\d+)?) (?:grad )?(?P<from>\p{L}+) in (?:grad )?(?P<to>\p{L}+)(?: um)?$",
        r"^(?P<value>-?\d+(?:\.\d+)?) (?:grad )?(?P<from>\p{L}+) in (?:grad )?(?P<to>\p{L}+)$",
    ],
    units: &[
        ("millimeters", &["millimeter", "millimeter", "millimetern"]),
        ("centimeters", &["zentimeter", "zentimeter", "zentimetern"]),
        ("meters", &["meter", "meter", "metern"]),
        ("kilometers", &["kilometer", "kilometer", "kilometern"]),
        ("inches", &["zoll", "zoll"]),
        ("feet", &["fuß", "fuß"]),
        ("yards", &["yard", "yards"]),
        ("miles", &["meile", "meilen"]),
        ("grams", &["gramm", "gramm"]),
        ("kilograms", &["kilogramm", "kilogramm", "kilo", "kilos"]),
        ("pounds", &["pfund", "pfund"]),
        ("ounces", &["unze", "unzen"]),
        ("milliliters", &["milliliter", "milliliter", "millilitern"]),
        ("liters", &["liter", "liter", "litern"]),
        ("gallons", &["gallone", "gallonen"]),
        (
            "degrees Celsius",
            &["grad celsius", "grad celsius", "celsius"],
        ),
        (
            "degrees Fahrenheit",
            &["grad fahrenheit", "grad fahrenheit", "fahrenheit"],
        ),
        ("seconds", &["sekunde", "sekunden"]),
        ("minutes", &["minute", "minuten"]),
        ("hours", &["stunde", "stunden"]),
        ("days", &["tag", "tage", "tagen"]),
        ("weeks", &["woche", "wochen"]),
    ],
    degrees: "grad",
    places: &[
        ("tokio", "tokyo"),
        ("mailand", "milan"),
        ("rom", "rome"),
        ("venedig", "venice"),
        ("neapel", "naples"),
        ("florenz", "florence"),
        ("münchen", "munich"),
        ("köln", "cologne"),
        ("wien", "vienna"),
        ("zürich", "zurich"),
        ("genf", "geneva"),
        ("prag", "prague"),
        ("warschau", "warsaw"),
        ("moskau", "moscow"),
        ("kopenhagen", "copenhagen"),
        ("brüssel", "brussels"),
        ("lissabon", "lisbon"),
        ("athen", "athens"),
        ("peking", "beijing"),
        ("kairo", "cairo"),
        ("neu delhi", "new delhi"),
        ("singapur", "singapore"),
        ("havanna", "havana"),
        ("mexiko stadt", "mexico city"),
        ("deutschland", "germany"),
        ("österreich", "austria"),
        ("der Schweiz", "switzerland"),
        ("schweiz", "switzerland"),
        ("spanien", "spain"),
        ("frankreich", "france"),
        ("italien", "italy"),
        ("japan", "japan"),
        ("indien", "india"),
        ("australien", "australia"),
        ("kalifornien", "california"),
        ("der Türkei", "turkey"),
        ("türkei", "turkey"),
        ("griechenland", "greece"),
        ("den USA", "united states"),
        ("usa", "united states"),
        ("vereinigten staaten", "united states"),
        ("vereinigten staaten von amerika", "united states"),
        ("großbritannien", "united kingdom"),
        ("england", "united kingdom"),
        ("vereinigten königreich", "united kingdom"),
        ("den Niederlanden", "netherlands"),
        ("niederlanden", "netherlands"),
        ("holland", "netherlands"),
        ("Trinidad und Tobago", "trinidad and tobago"),
        ("trinidad und tobago", "trinidad and tobago"),
        ("Bosnien und Herzegowina", "bosnia and herzegovina"),
        ("bosnien und herzegowina", "bosnia and herzegovina"),
        ("Antigua und Barbuda", "antigua and barbuda"),
        ("antigua und barbuda", "antigua and barbuda"),
    ],
    articles: &["der", "die", "das", "den", "dem"],
    months: MONTHS,
    and: " und ",
    begins: "was|wer|wen|wem|wessen|wie|wo|woher|wohin|wann|warum|wieso|weshalb|wozu|welche[rnms]?|gibt|ist|sind|war|hat|habe|hast|haben|kann|kannst|können|könntest|könnten|muss|soll|darf|wird|werden|bist|ich|du|wir|es|sag|sage|sagen|erzähl|erzähle|erzählen|stell|stelle|stellen|mach|mache|machen|nenn|nenne|nennen|zeig|zeige|zeigen|spiel|spiele|spielen",
    normalise,
};

static READER: LazyLock<Option<Reader>> = LazyLock::new(|| Reader::new(&GRAMMAR).ok());

pub(super) static WORDING: Wording = Wording {
    greeting: "Hallo! Was kann ich für Sie tun?",
    how_are_you: "Danke, hier ist alles in Ordnung. Was kann ich für Sie tun?",
    welcome: "Gern geschehen.",
    goodbye: "Auf Wiederhören!",
    who_are_you: "Ich bin der eingebaute Assistent von undertone, ein kleines Programm.",
    go_on: "Gut. Was kann ich für Sie tun?",
    okay: "Gut.",
    which_sum: "Entschuldigung, diese Rechnung habe ich nicht verstanden.",
    time_of_day: "Einen Timer kann ich nur auf eine Dauer stellen, etwa zehn Minuten, nicht auf eine Uhrzeit.",
    bad_length: "Ein Timer kann von einer Sekunde bis zu vierundzwanzig Stunden laufen.",
    which_length: "Das war mehr als eine Dauer. Wie lange soll der Timer laufen?",
    fixed_length: "Die Dauer eines Timers kann ich nicht ändern. Sie können ihn beenden und einen neuen stellen.",
    how_long: "Wie lange soll der Timer laufen?",
    which_timer: "Welchen Timer soll ich beenden?",
    where_to: "Für welchen Ort?",
    left_alone: "Gut, dann lasse ich es.",
    can: "Ich kann {}.",
    can_chat: "Ich kann nur ein wenig plaudern.",
    and: "und",
    abilities: &[
        ("get_time", "die Uhrzeit sagen"),
        ("calculate", "rechnen"),
        ("convert_units", "Einheiten umrechnen"),
        ("set_timer", "Timer stellen"),
        ("get_weather", "das Wetter nachsehen"),
    ],
    beyond: "Das kann ich allein nicht.",
    connect: "Für alles andere braucht es ein Sprachmodell.",
    i_said: "Ich sagte: {}",
    nothing_said: "Ich habe noch nichts gesagt.",
    done_before: "Das war schon erledigt.",
    done: "Erledigt.",
    need: "Dafür brauche ich noch eine Angabe: {}.",
    broken: "Entschuldigung, das funktioniert gerade nicht.",
    late: "Entschuldigung, das hat zu lange gedauert.",
    uncertain: "Entschuldigung, ich habe keine klare Antwort bekommen. Ich weiß nicht, ob das geklappt hat.",
    no_use: "Entschuldigung, das hat nicht geklappt.",
    unknown_place: "Einen Ort namens {} kenne ich leider nicht.",
    no_timer: "Es läuft kein Timer.",
    negations: &["nicht", "kein", "keine", "keinen", "nie"],
    requests: |said| {
        READER
            .as_ref()
            .map_or_else(Vec::new, |reader| reader.requests(said))
    },
    timer_of: |said| READER.as_ref()?.timer_of(said),
    other_length: |said, seconds| READER.as_ref()?.other_length(said, seconds),
    takes_back: |said| {
        let reader = READER.as_ref();
        reader.is_some_and(|reader| reader.takes_back(said))
    },
    declines: |said| {
        let reader = READER.as_ref();
        reader.is_some_and(|reader| reader.declines(said))
    },
    target_of: |said| READER.as_ref()?.target_of(said),
    again: |said, asked, before| READER.as_ref()?.again(said, asked, before),
    place_here: |name| {
        let reader = READER.as_ref();
        reader.map_or_else(|| name.to_owned(), |reader| reader.place_here(name))
    },
    points: |said| {
        let reader = READER.as_ref();
        reader.is_some_and(|reader| reader.points(said))
    },
    result,
    question,
    rings: |length, label| match label {
        Some(label) => format!("Der Timer für {label} ist abgelaufen."),
        None => format!("Der Timer auf {} ist abgelaufen.", lasting(length)),
    },
};

fn result(tool: &str, output: &Value, said: &str) -> Option<String> {
    let reader = READER.as_ref()?;
    match tool {
        "get_time" => time(reader, output, said),
        "calculate" => sum(output),
        "convert_units" => conversion(reader, output),
        "set_timer" => Some(format!("Gut, {} läuft.", timer(output, "der Timer")?)),
        "list_timers" => timers(output),
        "cancel_timer" => cancelled(output),
        "get_weather" => weather(reader, output),
        _ => None,
    }
}

fn question(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    Some(match tool {
        "set_timer" => {
            let timer = timer(&Value::Object(arguments.clone()), "einen Timer")?;
            format!("Soll ich {timer} stellen?")
        }
        "cancel_timer" => "Soll ich den Timer beenden?".into(),
        _ => return None,
    })
}

/// "Es ist 15 Uhr 5 in Tokio."
fn time(reader: &Reader, output: &Value, said: &str) -> Option<String> {
    let field = |name: &str| output.get(name)?.as_str();
    let clock = || {
        Some(match wording::clock(field("time")?)? {
            (hour, 0) => format!("es ist {hour} Uhr"),
            (hour, minute) => format!("es ist {hour} Uhr {minute}"),
        })
    };
    let day = || day(reader, field("date")?, said);
    let place = field("place").map(|place| format!(" in {}", reader.place_here(place)));
    let place = place.unwrap_or_default();
    let answer = if reader.asks_for_both(said) {
        format!("{}{place}, und {}", clock()?, day()?)
    } else if reader.asks_for_date(said) {
        day()? + &place
    } else {
        clock()? + &place
    };
    Some(format!("{}.", capitalised(&answer)))
}

/// "es ist Montag, der 2. März 2026", "morgen ist Dienstag, der 3. März 2026"
fn day(reader: &Reader, today: &str, said: &str) -> Option<String> {
    Some(match reader.other_day(said) {
        None => format!("es ist {}", date(today, 0)?.join(", der ")),
        Some(Day::Away(days, name)) => {
            let verb = if days < 0 { "war" } else { "ist" };
            let date = date(today, days)?.join(", der ");
            format!("{} {verb} {date}", name.to_lowercase())
        }
        Some(Day::Weekday(day)) => {
            let [name, date] = date(today, wording::days_until(day, today)?)?;
            format!("am {name} ist der {date}")
        }
    })
}

/// "Montag" and "2. März 2026": a date so many days after `today`.
fn date(today: &str, days: i64) -> Option<[String; 2]> {
    let (day_of_week, month, day, year) = wording::date_after(today, days)?;
    let month = MONTHS.get(month)?;
    Some([
        (*DAYS.get(day_of_week)?).to_owned(),
        format!("{day}. {month} {year}"),
    ])
}

/// "12 mal 7 ist 84."
fn sum(output: &Value) -> Option<String> {
    let signs = [
        ("% of", " Prozent von"),
        ("sqrt(", "die Wurzel aus "),
        (")", ""),
        ("(", ""),
        ("*", "mal"),
        ("/", "geteilt durch"),
        ("^", "hoch"),
        ("+", "plus"),
        (" - ", " minus "),
    ];
    let sum = Sum::of(output, &signs, "mal 10 hoch")?;
    let about = if sum.is_rounded { "etwa " } else { "" };
    let words = capitalised(&sum.expression);
    Some(format!("{words} ist {about}{}.", sum.result))
}

/// "5 Meilen sind etwa 8,05 Kilometer."
fn conversion(reader: &Reader, output: &Value) -> Option<String> {
    let side = |value: &str, unit: &str| {
        let number = wording::number(output.get(value)?.as_f64()?);
        let unit = reader.unit_here(output.get(unit)?.as_str()?, &number);
        // Units are nouns: "Meilen", but "Grad Celsius".
        let unit: Vec<String> = unit.split(' ').map(capitalised).collect();
        Some((format!("{number} {}", unit.join(" ")), number == "1"))
    };
    let about = if output.get("approximate")?.as_bool()? {
        "etwa "
    } else {
        ""
    };
    let ((from, one), (to, _)) = (side("value", "from")?, side("result", "to")?);
    let verb = if one { "ist" } else { "sind" };
    Some(format!("{from} {verb} {about}{to}."))
}

fn lasting(length: Duration) -> String {
    let units = [
        ("Stunde", "Stunden"),
        ("Minute", "Minuten"),
        ("Sekunde", "Sekunden"),
    ];
    wording::length(length, units, "und")
}

/// "der Timer auf 10 Minuten für Pasta"
fn timer(timer: &Value, noun: &str) -> Option<String> {
    let length = lasting(wording::seconds(timer, "seconds")?);
    Some(match timer.get("label").and_then(Value::as_str) {
        Some(label) => format!("{noun} auf {length} für {}", capitalised(label)),
        None => format!("{noun} auf {length}"),
    })
}

fn timers(output: &Value) -> Option<String> {
    let one = |each: &Value| {
        let left = lasting(wording::seconds(each, "remaining_seconds")?);
        Some(format!("{}, noch {left}", timer(each, "einer")?))
    };
    let timers = output.get("timers")?.as_array()?;
    let each: Vec<String> = timers.iter().map(one).collect::<Option<_>>()?;
    Some(match each.as_slice() {
        [] => WORDING.no_timer.into(),
        [one] => format!("Es läuft {one}.").replacen("einer", "ein Timer", 1),
        several => format!("Es laufen {} Timer: {}.", several.len(), several.join("; ")),
    })
}

fn cancelled(output: &Value) -> Option<String> {
    let timers = output.get("cancelled")?.as_array()?;
    Some(match timers.as_slice() {
        [one] => format!("Gut, {} ist beendet.", timer(one, "der Timer")?),
        several => format!("Gut, {} Timer sind beendet.", several.len()),
    })
}

/// "In Berlin sind es 12 Grad, und es ist bewölkt."
fn weather(reader: &Reader, output: &Value) -> Option<String> {
    let field = |name: &str| output.get(name)?.as_str();
    let number = |name: &str| output.get(name)?.as_i64();
    let sky = match field("sky")? {
        "clear" => "klarer Himmel",
        "mostly clear" => "meist klarer Himmel",
        "partly cloudy" => "teils bewölkt",
        "cloudy" => "bewölkt",
        "foggy" => "neblig",
        "drizzling" => "Nieselregen",
        "freezing drizzle" => "gefrierender Nieselregen",
        "light rain" => "leichter Regen",
        "rainy" => "Regen",
        "heavy rain" => "starker Regen",
        "freezing rain" => "gefrierender Regen",
        "light snow" => "leichter Schneefall",
        "snowy" => "Schneefall",
        "heavy snow" => "starker Schneefall",
        "showers" => "Schauer",
        "heavy showers" => "starke Schauer",
        "snow showers" => "Schneeschauer",
        "thunderstorms" => "Gewitter",
        "thunderstorms with hail" => "Gewitter mit Hagel",
        _ => return None,
    };
    let place = reader.place_here(field("place")?);
    let day = match field("day")? {
        "now" => {
            return Some(format!(
                "In {place} sind es {} Grad, {sky}.",
                number("temperature")?
            ));
        }
        "today" => "heute",
        _ => "morgen",
    };
    let (low, high) = (number("low")?, number("high")?);
    let rain = number("rain_chance").filter(|chance| *chance >= 30);
    let rain = rain.map_or_else(String::new, |chance| {
        format!(", Regenwahrscheinlichkeit {chance} Prozent")
    });
    Some(format!(
        "In {place} wird es {day} {low} bis {high} Grad, {sky}{rain}."
    ))
}
