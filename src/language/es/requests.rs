//! The built-in assistant in Spanish: what it understands and what it says.

use super::numbers::normalise;
use super::words::{DAYS, MONTHS};
use crate::language::grammar::{Day, Grammar, Reader};
use crate::language::request::Talk;
use crate::language::wording::{self, Sum, Wording, capitalised};
use serde_json::{Map, Value};
use std::sync::LazyLock;
use std::time::Duration;

static GRAMMAR: Grammar = Grammar {
    again: r"^(?:(?:vale|okay|ok|gracias|bueno|ah) )*(?:(?:y )?(?:qué tal|qué hay de|qué pasa con|cómo está)|y|(?:(?:no|perdón) )*(?:quería decir|quise decir|me refería a)) (?P<rest>.+)$",
    leads: "eh|em|este|bueno|pues|vale|okay|ok|hola|oye|oiga|buenos días|buenas tardes|buenas noches|sí|por favor|gracias|perdón|perdona|perdone|y|entonces|ahora|a ver|dime|dígame|me puedes decir|puedes decirme|me puede decir|puede decirme|podrías decirme|podría decirme|me podrías decir|me podría decir|sabes|sabe usted|quiero saber|quisiera saber|me gustaría saber|undertone|computadora|ordenador",
    tails: "por favor|gracias|entonces|pues|ahora|ahora mismo|en este momento|para mí|ya",
    refused: r"\b(?:no|ningún|ninguna|déjalo|déjelo|olvídalo|olvídelo)\b",
    asides: &[
        r" (?P<aside>(?:para que|de modo que|de forma que|porque|ya que) (?:[\p{L}']+ )*?(?:no|ningún|ninguna) [\p{L}' ]+)$",
        r" (?P<aside>para no \p{L}+r(?:me|te|se|nos|l[oae]s?)?(?: [\p{L}' ]+)?)$",
        r" (?P<aside>que no se (?:me|nos|te|le) [\p{L}' ]+)$",
        r"^(?P<aside>para (?:que (?:[\p{L}']+ )*?)?no (?:[\p{L}']+ )+?)(?:pon|ponme|ponga|póngame|poné|poneme|inicia|inicie|crea|programa|me pones?|puedes?|podrías?|necesito|quiero|quisiera|avísame|avíseme|recuérdame|recuérdeme|despiértame|despiérteme)\b",
        r"(?:^| )(?P<aside>si no (?:(?:te|le|os|les) (?:importa|molesta)|es (?:mucha |demasiada )?molestia))\b",
        r"^(?P<aside>no (?:te olvides|se olvide) de )(?:poner|programar|avisar|recordar|despertar)\p{L}*\b",
        r"^(?P<aside>no )(?:sé|sabes|sabe|sabrás|sabrá) (?:qué (?:hora|día|fecha) es|a cuántos estamos|qué tiempo (?:hace|hará))\b",
    ],
    revokes: r"\b(?:mejor|espera|espere|déjal[oa]|déjel[oa]|olvídal[oa]|olvídel[oa]|cancela|cancele|cancélal[oa]|cancélel[oa]|basta|stop|alto|perdón|perdona|perdone|pero|aunque|sino|prefiero|segur[oa]|bueno|da (?:igual|lo mismo)|no (?:eh|em|pues|en realidad|s[é]|s[ée] si|importa|nada|para|pare|gracias)|hace falta|l[oa] (?:quiero|necesito))\b|\bno quiero$",
    talk: &[
        (
            "hola|buenas|buenos días|buenas tardes|buenas noches|qué tal hola|(?:hola )?(?:me oyes|me oye|me escuchas|me escucha|hay alguien(?: ahí)?|(?:sigue|sigues|está|estás) ahí)",
            Talk::Greeting,
        ),
        (
            "(?:hola )?(?:cómo estás|cómo está|cómo está usted|qué tal|qué tal estás|cómo te va|cómo va todo)",
            Talk::HowAreYou,
        ),
        (
            "(?:(?:muy bien|bien|perfecto|genial|estupendo|entendido|de acuerdo|está bien) )*(?:gracias|muchas gracias|mil gracias)(?: por (?:tu ayuda|su ayuda|la ayuda|todo|el temporizador|la alarma|la información))?|muy amable",
            Talk::Thanks,
        ),
        (
            "(?:(?:vale|bueno|bien|muy bien|perfecto|okay|ok|y|pues|me voy|tengo que (?:irme|colgar)|(?:no )?(?:gracias|muchas gracias|mil gracias|muchísimas gracias)(?: por (?:tu ayuda|su ayuda|la ayuda|todo))?) )*(?:adiós|hasta (?:luego|pronto|mañana|la próxima|la vista|otro día)|nos vemos(?: (?:luego|pronto|mañana))?|chao|chau|(?:no )?(?:eso es todo|eso era todo|eso sería todo)|que (?:tenga|tengas|pase|pases) (?:un )?buen(?:a|as|os)? (?:día|tarde|noche|noches|días)|cuelga|cuelgue)(?: (?:y )?(?:adiós|hasta (?:luego|pronto|mañana|la próxima|la vista|otro día)|nos vemos(?: (?:luego|pronto|mañana))?|chao|chau|(?:no )?(?:eso es todo|eso era todo|eso sería todo)|que (?:tenga|tengas|pase|pases) (?:un )?buen(?:a|as|os)? (?:día|tarde|noche|noches|días)|cuelga|cuelgue|(?:gracias|muchas gracias|mil gracias|muchísimas gracias)(?: por (?:tu ayuda|su ayuda|la ayuda|todo))?|buenas noches))*|(?:(?:vale|bueno|bien|muy bien|perfecto|okay|ok|y) )*(?:(?:no|(?:no )?(?:gracias|muchas gracias|mil gracias)(?: por (?:tu ayuda|su ayuda|la ayuda|todo))?) )+nada más|nada más (?:gracias|muchas gracias)",
            Talk::Goodbye,
        ),
        (
            "quién eres|quién es usted|cómo te llamas|cómo se llama|qué eres|(?:eres|es) (?:usted )?(?:un robot|una máquina|una persona|un humano|humano|real)|quién (?:te|le|lo) ha (?:creado|hecho|programado)",
            Talk::WhoAreYou,
        ),
        (
            "qué puedes hacer|qué puede hacer|qué sabes hacer|qué sabe hacer|ayuda|en qué puedes ayudarme|en qué me puedes ayudar|en qué puede ayudarme",
            Talk::Capabilities,
        ),
        (
            "cómo|qué|cómo dices|cómo dice|repite|repítelo|repítalo|repita|otra vez|puedes repetir(?:lo)?|puede repetir(?:lo)?|me lo (?:puedes|puede) repetir|(?:me lo )?(?:repites|repite)|(?:puedes|puede) repetir eso|qué has dicho|qué ha dicho|qué dijo|qué dijiste|cómo dijo|cómo ha dicho|mande|no (?:(?:le|te|lo|la|se) )*(?:he |ha )?(?:entendido|oído|escuchado|comprendido)(?: (?:bien|nada|eso))*|no (?:(?:le|te|lo|la|se) )*(?:entiendo|entendí|comprendo|oigo|oí|escucho|escuché|oye|escucha)(?: (?:bien|nada|eso|lo que dice|lo que dices))*",
            Talk::Repeat,
        ),
        (
            "sí(?: por favor| claro)?|claro(?: que sí)?|vale|de acuerdo|okay|ok|muy bien|bien|perfecto|genial|estupendo|entendido|está bien",
            Talk::Yes,
        ),
        ("no|no gracias", Talk::No),
        (
            "para|pare|alto|silencio|cállate|cállese|déjalo|déjelo|olvídalo|olvídelo|no importa|cancela|cancele|basta|espera|espere",
            Talk::Stop,
        ),
        (
            "(?:(?:no|espera|espere) )?(?:solo )?un (?:momento|momentito|segundo|segundito)|(?:(?:espera|espere) )?un minut(?:o|ito)|(?:espera|espere) un poco",
            Talk::Wait,
        ),
    ],
    time: r"\b(?:qué hora|la hora|qué horas)\b",
    elsewhen: r"\b(?:a|hasta|desde|sobre|hacia|para) qué horas?\b|\b(?:en|dentro de|hace) (?:\d+(?:\.\d+)?|una?|media|unas|unos) (?:horas?|minutos?|segundos?|días?|semanas?)\b",
    date: r"\b(?:qué día(?: de la semana| del mes)?|qué fecha|la fecha|a cuántos estamos|a qué (?:día )?estamos|qué mes|qué año)\b",
    date_words: &[
        "a",
        "cae",
        "caerá",
        "cuál",
        "dame",
        "dar",
        "de",
        "decir",
        "del",
        "deme",
        "el",
        "en",
        "es",
        "estamos",
        "estaremos",
        "exacta",
        "la",
        "me",
        "para",
        "puede",
        "puedes",
        "que",
        "ser",
        "será",
        "tendremos",
        "tenemos",
        "va",
    ],
    past: &["fue", "era", "estábamos", "estuvimos", "cayó", "pasado"],
    today: r"\b(?:(?:hoy |de |esta |por la )+(?:mañana|tarde|noche)|esta (?:mañana|tarde|noche)|(?:de |el día de )?hoy(?: día| en día)?|ahora(?: mismo)?|actual)\b",
    other_days: &[
        (r"\bpasado mañana\b", 2, "Pasado mañana"),
        (r"\b(?:anteayer|antes de ayer|antier)\b", -2, "Anteayer"),
        (r"\bayer\b", -1, "Ayer"),
        (r"\bmañana\b", 1, "Mañana"),
    ],
    weekdays: DAYS,
    near_weekday: ("(?:el|próximo|este) ", " (?:próximo|que viene)"),
    long_time: r"\b(?:\d+|horas?|días?|semanas?|mes|meses|años?)\b",
    place: r"\b(?:en|de|para) (?P<place>[\p{L}' ]+?)(?: es)?$",
    no_place: "es|está|están|era|fue|hace|hacía|hará|hay|va|llueve|lloverá|llover|lloviendo|nieva|nevar|nevando|qué|cuál|cuánt[oa]s?|cómo|cuándo|dónde|si|porque|pero|me|son|el tiempo|la hora|el clima|la temperatura|un|paraguas|ahora|hoy|mismo|actualmente|ya|este momento|frío|calor|ir|salir|ver|saber",
    there: r"\b(?:allí|allá|ahí)\b",
    timer: r"\b(?:temporizador|temporizadores|alarma|alarmas|cronómetro|cuenta atrás|cuenta regresiva|despertador)\b|\b(?:despiértame|despiérteme|avísame|avíseme) (?:en|dentro de)\b|\b(?:recuérdame|recuérdeme|recordarme)\b",
    reminds: r"\b(?:recuérdame|recuérdeme|recordarme)\b",
    asks: r"^(?:(?:a|en|hasta|desde|por|dentro de) )?(?:cuándo|cuánt[oa]s?|cuáles|cuál|qué hora|qué (?:temporizador(?:es)?|alarmas?|cronómetros?|tiempo))\b|^(?:está|están|hay|sigue|siguen|tengo|queda|quedan|falta|faltan|ha terminado|ha sonado|terminó|sonó|ya)\b|\bcuánt[oa]s? (?:tiempo |minutos |horas )?(?:(?:le|les|me) )?(?:queda|quedan|falta|faltan)\b",
    rest: r"^(?:cuánto(?: tiempo)?|cuántos minutos) (?:(?:me|le|nos) )?(?:queda|quedan|falta|faltan)(?: todavía| aún)?$",
    corrects: r"^(?:(?:(?:espera|espere) )*(?:no|perdón|perdona|perdone|mejor|digo|quería decir|quise decir|he dicho|que sean) )+(?:(?:de|a|en) )?(?P<length>.+?)(?: (?:por favor|mejor))*$",
    takes_back: r"(?:(?:no|perdón|perdone|perdona|espera|espere|para|pare) )*(?:(?:mejor )?(?:cancela|cancele|cancelar)(?: eso)?|(?:mejor )?(?:cancélal[oa]|cancélel[oa]|anúlal[oa]|anúlel[oa]|bórral[oa]|bórrel[oa]|quítal[oa]|quítel[oa]|páral[oa]|párel[oa]|apágal[oa]|apáguel[oa]|elimínal[oa]|elimínel[oa]|olvídal[oa]|olvídel[oa])|mejor no)",
    unneeded: r"\bya no (?:(?:lo|la|los|las|me|nos) )*(?:necesito|necesitamos|quiero|queremos|hace falta|hacen falta)(?: (?:el|la|los|las|est[ea]|es[ea]|mis?) (?:\p{L}+ ){0,2}(?:temporizador(?:es)?|alarmas?|cronómetros?|cuenta (?:atrás|regresiva)|despertador)(?: (?:de|del|para)(?: \S+){1,4})?$|$)",
    keeps: r"\b(?:deja|deje|dejar|mantén|mantenga|mantener|conserva|conserve)\b",
    wonders: r"^(?:por qué|para qué|quién)\b",
    tells: r"\b(?:(?:he|has|ha|hemos|han) puesto|puse|pusiste|puso|pusimos) (?:(?:ya|una?|el|la|los|las|mis?|tus?|otr[oa]s?|est[ea]|\d+) ){0,3}(?:temporizador|temporizadores|alarma|alarmas|cronómetro|despertador)(?: \S+){0,6}$|\b(?:siempre|nunca|normalmente|generalmente|a veces|a menudo|jamás|habitualmente|ayer|anteayer|anoche|antiguamente|el otro día|la semana pasada|de vez en cuando|cada (?:día|mañana|tarde|noche|semana|vez)|tod[oa]s l[oa]s (?:días|mañanas|tardes|noches|semanas))\b.* (?:pon(?:e|en|go|emos)|ponía[ns]?|poníamos|puse|puso|pusimos|pusieron|puesto|us(?:o|a|an|amos|aba)|tengo|tiene|tenía|tenemos|hago|program(?:o|a|an|amos|ó)|activ(?:o|a|an|ó)|suena|sonó|sonaba|había|he|ha|hemos|han|era|fue|estaba)\b|\b(?:pon(?:e|en|go|emos)|ponía[ns]?|poníamos|puse|puso|pusimos|pusieron|puesto|us(?:o|a|an|amos|aba)|tengo|tiene|tenía|tenemos|hago|program(?:o|a|an|amos|ó)|activ(?:o|a|an|ó)|suena|sonó|sonaba|había|he|ha|hemos|han|era|fue|estaba) (?:.* )?(?:siempre|nunca|normalmente|generalmente|a veces|a menudo|jamás|habitualmente|ayer|anteayer|anoche|antiguamente|el otro día|la semana pasada|de vez en cuando|cada (?:día|mañana|tarde|noche|semana|vez)|tod[oa]s l[oa]s (?:días|mañanas|tardes|noches|semanas))\b|\b(?:suel[eo]|suelen|solemos|solía[ns]?|solíamos) \p{L}+r\b|\b(?:pone|ponen|ponemos|ponía[ns]?|poníamos|pusieron|había[ns]? puesto|habíamos puesto)\b|\b(?:dice|dicen|dijo|dijeron|decía|pide|pidió|recomienda) que(?: \S+){0,8} (?:temporizador(?:es)?|alarmas?|cronómetros?|cuenta (?:atrás|regresiva)|despertador)\b|\bsi (?:yo |uno |una )?(?:pongo|pusiera|pusiese|ponemos)\b|\b(?:temporizador(?:es)?|alarmas?|cronómetros?|cuenta (?:atrás|regresiva)|despertador) (?:(?:ya|nunca|me|se|nos) )*(?:sonó|sonaba|sonaron|era|eran|fue|fueron|estaba|estuvo|ha|había|terminó)\b",
    own_acts: r"\b(?:dice|dicen|dijo|dijeron|decía|pide|pidió|recomienda) que (?:\S+ ){0,3}?(?:ponga|pongan|pongamos|programe|inicie|cree)\b|\b(?:siempre|nunca|normalmente|generalmente|a veces|a menudo) (?:inicia|crea|programa)\b|\b(?:inicia|crea|programa) (?:siempre|nunca|normalmente|generalmente|a veces|a menudo)\b",
    wishes: r"\b(?:ponnos|pónganos|póngannos|poneme|hazme|hágame|dame|deme|avísame|avíseme|despiértame|despiérteme|recuérdame|recuérdeme)\b|\bpon[é]\b|^(?:establece|establezca|fija|fije|coloca|coloque|ajusta|ajuste|programa|programe|activa|active|configura|configure|empieza|empiece|arranca|arranque)\b|^(?:(?:y|si|usted|ustedes|tú|che) )*(?:(?:me|nos) )?(?:pones?|ponen|ponemos)\b|\b(?:quiero|quería|quisiera|querría|queremos|necesito|necesitamos|necesitaría|gustaría)\b|\b(?:puedes|podés|podrías|quieres|querés|serías)\b|^(?:(?:me|nos|usted) )?(?:puede|podría|pueden|podrían|sería)\b|\bpongas\b|\bpor favor\b|^(?:(?:otr[oa]s?|vez|un|una|de|el mismo|la misma|nuev[oa]|\d\S*|minutos?|horas?|segundos?) )*(?:temporizador(?:es)?|alarmas?|cronómetros?|cuenta (?:atrás|regresiva)|despertador)\b|\botr[oa] (?:de|a|por) \d|\bde siempre\b|\bvez el (?:temporizador(?:es)?|alarmas?|cronómetros?|cuenta (?:atrás|regresiva)|despertador)\b|\basí que (?:un|una|otr[oa]) (?:temporizador(?:es)?|alarmas?|cronómetros?|cuenta (?:atrás|regresiva)|despertador)\b|\bcomo (?:siempre|ayer|anoche|la otra vez|todos los días|cada (?:día|noche))\b",
    orders: r"\b(?:pon|ponme|ponga|póngame|inicia|inicie|crea|programa (?:otr[oa]|una?|1))\b",
    // An infinitive after "para" is what a new timer is for.
    changes: r"\b(?:alarga|alargue|amplía|amplíe|extiende|extienda|prolonga|prolongue|acorta|acorte|reduce|reduzca|aumenta|aumente|cambia|cambie|modifica|modifique) (?:\S+ ){0,8}?(?:temporizador|alarma|cronómetro|cuenta|despertador)\b|(?:^|[^\sa] |[^r]a )(?:alargar|ampliar|extender|prolongar|acortar|reducir|aumentar|cambiar|modificar)\b|\b(?:añád|agrég|súm|quít)\p{L}*\b.*\b(?:horas?|minutos?|segundos?)(?: más)? (?:al|del|a la|de la|a mi|de mi) (?:temporizador|alarma|cronómetro|cuenta|despertador)\b|\b(?:añád|agrég|súm)\p{L}* (?:al|a la|a mi) (?:temporizador|alarma|cronómetro|cuenta|despertador)\b|\b(?:horas?|minutos?|segundos?) más (?:al|a la|a mi|en el|en la|en mi) (?:temporizador|alarma|cronómetro|cuenta|despertador)\b",
    cancel: r"^(?:para|pare|pará|termina|termine) (?:ya )?(?:\p{L}+ )?(?:temporizador(?:es)?|alarmas?|cronómetro|cuenta|despertador)\b|\b(?:cancela|cancele|canceles|cancelá|cancelar|cancélame|cancéleme|anula|anule|anular|borra|borre|borres|borrar|quita|quite|quites|quitar|quítame|quíteme|elimina|elimine|elimines|eliminar|detén|detenga|detengas|detener|parar|pares|apaga|apague|apagues|apagar|desactiva|desactive|desactivar) (?:\p{L}+ ){0,3}?(?:temporizador(?:es)?|alarmas?|cronómetro|cuenta|despertador)\b|\b(?:cancélal[oa]s?|cancélel[oa]s?|páral[oa]|párel[oa]|apágal[oa]|apáguel[oa]|quítal[oa]|quítel[oa]|bórral[oa]s?|bórrel[oa]s?)\b",
    list: r"\b(?:lista|muestra|muéstrame|muéstreme|enséñame|queda|quedan|falta|faltan|hay)\b",
    all: r"\b(?:todos|todas|ambos|ambas)\b",
    time_of_day: r"\b(?:a|para|sobre|hacia|de) las? (?:\d{1,2}|una)\b|\bmañana\b|\bmedio ?día\b|\bmedia ?noche\b|\b(?:lunes|martes|miércoles|jueves|viernes|sábado|domingo)\b|\bel (?:día )?\d{1,2}(?:/\d{1,2}| de)?\b",
    weather: r"\b(?:tiempo hace|tiempo hará|tiempo va a hacer|qué tiempo|el tiempo en|el tiempo (?:hoy|mañana)|el clima|pronóstico|lloverá|va a llover|llueve|nieva|qué temperatura|frío hace|calor hace|hace (?:mucho )?(?:frío|calor|sol|viento) (?:hoy |ahora |mañana )?en|cuántos grados (?:hace|hay)|(?:necesito|llevo|llevar|hace falta) (?:\p{L}+ ){0,5}paraguas|está (?:lloviendo|nevando) (?:\p{L}+ ){0,2}en|va a nevar|va a hacer (?:\p{L}+ ){0,2}(?:frío|calor|sol|viento)|(?:cuál es la temperatura|la temperatura en)|cómo (?:está|estará) (?:\p{L}+ ){0,4}(?:tiempo|clima))\b|^(?:hace|hará) (?:buen|mal) tiempo (?:\p{L}+ ){0,2}en\b",
    reports: r"\b(?:tiempo|clima|temperatura) (?:\S+ ){0,5}(?:es|está|era|fue|estaba|estuvo|ha)\b|\b(?:hizo|hacía|hubo|había|llovió|llovía|nevó|estaba|estuvo)\b|\b(?:me|nos) (?:encanta|gusta|gustaba|gustó)\b|\b(?:odio|adoro|amo)\b|\b(?:dice|dicen|dijo|dijeron|decía) que\b|\btiempo hace que\b",
    enquires: r"\b(?:qué (?:tiempo|clima|temperatura|tal)|cómo (?:está|estará|es|anda|sigue)|cuál|cuántos grados)\b|^(?:es|está|hace|hay|hará|va a|llueve|nieva|lloverá)\b",
    no_forecast: r"\b(?:pasado mañana|ayer|anteayer|lunes|martes|miércoles|jueves|viernes|sábado|domingo|fin de semana|semana|días|horas?|mes|que viene|próxim[oa]s?|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre|navidad)\b|\b\d{1,2}/\d{1,2}\b|\bel (?:día )?\d{1,2}\b",
    days: &[
        (
            r"\b(?:para )?mañana por la (?:mañana|tarde|noche)\b",
            "tomorrow",
        ),
        (
            r"\b(?:para )?(?:hoy por la (?:mañana|tarde|noche)|(?:esta|por la) (?:mañana|tarde|noche))\b",
            "today",
        ),
        (r"\b(?:para )?mañana\b", "tomorrow"),
        (r"\b(?:para )?hoy\b", "today"),
    ],
    before_length: &["de", "dentro", "en", "por", "para", "y", "a", "durante"],
    within_length: &["y", "con", "más", "mas", "eh", "em"],
    labels: &[
        r"\b(?:recuérdame|recuérdeme|recordarme) (?:que )?(?:(?:tengo que|debo) )?(?P<label>\p{L}+(?: \p{L}+){0,4})$",
        r"\bpara (?:la |el |las |los |mi |mis )?(?P<label>\p{L}+(?: \p{L}+)?)$",
        r"\b(?:llamad[oa]|de nombre|con el nombre(?: de)?) (?P<label>\p{L}+)",
        r"\b(?:temporizador|alarma|cronómetro) (?:del|de(?: la| los| las)?) (?P<label>\p{L}+(?: \p{L}+)?)$",
    ],
    no_labels: &["antes", "cocina", "mañana"],
    lengths: &[
        (
            r"\btres cuartos de hora\b|\b3 cuartos de hora\b",
            "45 minutos",
        ),
        (r"\b(?:un )?cuarto de hora\b", "15 minutos"),
        (r"\b(?:una |1 )?hora y media\b", "90 minutos"),
        (r"\b(?:una |1 )?hora y cuarto\b", "75 minutos"),
        (r"\b(?:una |1 )?hora y 3 cuartos\b", "105 minutos"),
        (r"\b(\d+) horas y cuarto\b", "$1.25 horas"),
        (r"\b(\d+) horas y 3 cuartos\b", "$1.75 horas"),
        (r"\b(\d+) y media horas\b", "$1.5 horas"),
        (r"\b(?:un |1 )?minuto y medio\b", "90 segundos"),
        (r"\b(\d+) horas y media\b", "$1.5 horas"),
        (r"\b(\d+) minutos y medio\b", "$1.5 minutos"),
        (r"\bmedia hora\b", "30 minutos"),
        (r"\bmedio minuto\b", "30 segundos"),
        (r"\b(?:una?|1) (hora|minuto|segundo)\b", "1 $1"),
        // "Una hora y diez", if no unit follows.
        (
            r"\b(\d+) horas? (?:y|con) (\d{1,2})( (?:para|por)\b|$)",
            "$1 horas $2 minutos$3",
        ),
        (
            r"\b(\d+) minutos? (?:y|con) (\d{1,2})( (?:para|por)\b|$)",
            "$1 minutos $2 segundos$3",
        ),
        // "Uno de cinco y otro de diez minutos", "cinco, diez y quince minutos".
        (
            r"\b(\d+) y ((?:(?:también|luego|después) )*(?:(?:otro|otra|una|1|el otro|la otra)(?: más)? )?(?:para (?:la |el |las |los )?\p{L}+ )?(?:(?:de|para|a|por) )?\d+) (horas?|minutos?|segundos?)\b",
            "$1 $3 y $2 $3",
        ),
        (
            r"\b(\d+) (\d+) (horas?|minutos?|segundos?) y\b",
            "$1 $3 $2 $3 y",
        ),
        (
            r"\b(\d+) (horas?|minutos?|segundos?) y ((?:otro|otra|una|1)(?: más)? (?:de|para|a|por) \d+)( para\b|$)",
            "$1 $2 y $3 $2$4",
        ),
    ],
    several: r"\b(?:(?P<count>[2-9]|1\d) (?:\p{L}+ )?)?(?:temporizadores|alarmas|cronómetros)\b|\by (?:(?:también|luego|después) )*(?:otro|otra|una|1|el otro|la otra)\b",
    units_of_time: ["horas?", "minutos?|min", "segundos?|seg"],
    sum: r"^(?:(?:cuánto|cuántos|qué) (?:es|son|da|suman|hace)|(?:calcula|calcule)(?: por favor)?) (?P<sum>.+?)$",
    operations: &[
        (r"\b(?:euros?|dólar(?:es)?|pesos?|céntimos?)\b|€", ""),
        (
            r"(?:el |un )?(\d+(?:\.\d+)?) ?(?:por 100|%) (?:de|del)\b",
            "$1% of",
        ),
        (
            r"\b(?:la )?raíz (?:cuadrada )?de (\d+(?:\.\d+)?)",
            "sqrt($1)",
        ),
        (r"\bal cuadrado\b", "^ 2"),
        (r"\bal cubo\b", "^ 3"),
        (r"\belevado a(?: la)?\b", "^"),
        (r"\b(?:dividido por|dividido entre|dividido|entre)\b", "/"),
        (r"\b(?:multiplicado por|por)\b|×", "*"),
        (r"\b(?:más|y)\b", "+"),
        (r"\bmenos\b", "-"),
        (r"\bla mitad de\b", "0.5 *"),
        (r"\bel doble de\b", "2 *"),
    ],
    conversions: &[
        r"^(?:a )?cuánt[oa]s (?:grados )?(?P<to>\p{L}+) (?:son|equivalen|equivale|hay en|tienen|tiene|es) (?P<value>-?\d+(?:\.\d+)?|una?) (?:grados )?(?P<from>\p{L}+)$",
        r"^(?:cuánto|qué) (?:son|es) (?P<value>-?\d+(?:\.\d+)?|una?) (?:grados )?(?P<from>\p{L}+) en (?:grados )?(?P<to>\p{L}+)$",
        r"^(?:convierte|convierta|pasa|pase) (?P<value>-?\d+(?:\.\d+)?) (?:grados )?(?P<from>\p{L}+) (?:a|en) (?:grados )?(?P<to>\p{L}+)$",
        r"^(?P<value>-?\d+(?:\.\d+)?) (?:grados )?(?P<from>\p{L}+) (?:a|en) (?:grados )?(?P<to>\p{L}+)$",
    ],
    units: &[
        ("millimeters", &["milímetro", "milímetros"]),
        ("centimeters", &["centímetro", "centímetros"]),
        ("meters", &["metro", "metros"]),
        ("kilometers", &["kilómetro", "kilómetros"]),
        ("inches", &["pulgada", "pulgadas"]),
        ("feet", &["pie", "pies"]),
        ("yards", &["yarda", "yardas"]),
        ("miles", &["milla", "millas"]),
        ("grams", &["gramo", "gramos"]),
        ("kilograms", &["kilogramo", "kilogramos", "kilo", "kilos"]),
        ("pounds", &["libra", "libras"]),
        ("ounces", &["onza", "onzas"]),
        ("milliliters", &["mililitro", "mililitros"]),
        ("liters", &["litro", "litros"]),
        ("gallons", &["galón", "galones"]),
        (
            "degrees Celsius",
            &["grado Celsius", "grados Celsius", "celsius", "centígrados"],
        ),
        (
            "degrees Fahrenheit",
            &["grado Fahrenheit", "grados Fahrenheit", "fahrenheit"],
        ),
        ("seconds", &["segundo", "segundos"]),
        ("minutes", &["minuto", "minutos"]),
        ("hours", &["hora", "horas"]),
        ("days", &["día", "días"]),
        ("weeks", &["semana", "semanas"]),
    ],
    degrees: "grados",
    places: &[
        ("tokio", "tokyo"),
        ("londres", "london"),
        ("nueva york", "new york"),
        ("múnich", "munich"),
        ("berlín", "berlin"),
        ("colonia", "cologne"),
        ("viena", "vienna"),
        ("ginebra", "geneva"),
        ("praga", "prague"),
        ("varsovia", "warsaw"),
        ("moscú", "moscow"),
        ("copenhague", "copenhagen"),
        ("bruselas", "brussels"),
        ("lisboa", "lisbon"),
        ("atenas", "athens"),
        ("pekín", "beijing"),
        ("el cairo", "cairo"),
        ("roma", "rome"),
        ("milán", "milan"),
        ("venecia", "venice"),
        ("nápoles", "naples"),
        ("florencia", "florence"),
        ("parís", "paris"),
        ("nueva delhi", "new delhi"),
        ("singapur", "singapore"),
        ("la habana", "havana"),
        ("Ciudad de México", "mexico city"),
        ("ciudad de méxico", "mexico city"),
        ("sevilla", "seville"),
        ("alemania", "germany"),
        ("españa", "spain"),
        ("francia", "france"),
        ("italia", "italy"),
        ("japón", "japan"),
        ("méxico", "mexico"),
        ("estados unidos", "united states"),
        ("reino unido", "united kingdom"),
        ("estocolmo", "stockholm"),
        ("sídney", "sydney"),
        ("usa", "united states"),
        ("estados unidos de américa", "united states"),
        ("inglaterra", "united kingdom"),
        ("países bajos", "netherlands"),
        ("suiza", "switzerland"),
        ("Trinidad y Tobago", "trinidad and tobago"),
        ("trinidad y tobago", "trinidad and tobago"),
        ("Bosnia y Herzegovina", "bosnia and herzegovina"),
        ("bosnia y herzegovina", "bosnia and herzegovina"),
        ("Antigua y Barbuda", "antigua and barbuda"),
        ("antigua y barbuda", "antigua and barbuda"),
    ],
    articles: &["el", "la", "los", "las"],
    months: MONTHS,
    and: " y ",
    begins: "qué|quién|quiénes|cómo|dónde|adónde|cuándo|cuánt[oa]s?|cuál|cuáles|por qué|para qué|de dónde|de qué|a qué|es|está|están|hay|hace|tiene|tienes|puede|puedes|podría|podrías|yo|me|te|dime|dígame|cuéntame|cuénteme|pon|ponme|ponga|póngame|haz|haga",
    normalise,
};

static READER: LazyLock<Option<Reader>> = LazyLock::new(|| Reader::new(&GRAMMAR).ok());

pub(super) static WORDING: Wording = Wording {
    greeting: "¡Hola! ¿Qué puedo hacer por usted?",
    how_are_you: "Aquí todo va bien, gracias. ¿Qué puedo hacer por usted?",
    welcome: "De nada.",
    goodbye: "¡Adiós!",
    who_are_you: "Soy el asistente integrado de undertone, un programa pequeño.",
    go_on: "Muy bien. ¿Qué puedo hacer por usted?",
    okay: "De acuerdo.",
    which_sum: "Perdone, no he entendido esa cuenta.",
    time_of_day: "Solo puedo poner un temporizador con una duración, por ejemplo diez minutos, no a una hora.",
    bad_length: "Un temporizador puede durar de un segundo a veinticuatro horas.",
    which_length: "Eso era más de una duración. ¿De cuánto tiempo pongo el temporizador?",
    fixed_length: "No puedo cambiar la duración de un temporizador. Puede cancelarlo y poner otro.",
    how_long: "¿De cuánto tiempo pongo el temporizador?",
    which_timer: "¿Qué temporizador cancelo?",
    where_to: "¿En qué lugar?",
    left_alone: "De acuerdo, no lo hago.",
    can: "Puedo {}.",
    can_chat: "Solo puedo charlar un poco.",
    and: "y",
    abilities: &[
        ("get_time", "decir la hora"),
        ("calculate", "hacer cuentas"),
        ("convert_units", "convertir unidades"),
        ("set_timer", "poner temporizadores"),
        ("get_weather", "consultar el tiempo"),
    ],
    beyond: "Eso no puedo hacerlo yo solo.",
    connect: "Para lo demás hace falta un modelo de lenguaje.",
    i_said: "He dicho: {}",
    nothing_said: "Todavía no he dicho nada.",
    done_before: "Eso ya estaba hecho.",
    done: "Hecho.",
    need: "Para eso me falta un dato: {}.",
    broken: "Perdone, eso no funciona ahora mismo.",
    late: "Perdone, eso ha tardado demasiado.",
    uncertain: "Perdone, no he recibido una respuesta clara y no sé si se ha hecho.",
    no_use: "Perdone, no ha funcionado.",
    unknown_place: "Lo siento, no conozco ningún lugar llamado {}.",
    no_timer: "No hay ningún temporizador en marcha.",
    negations: &["no", "ningún", "ninguna", "nunca"],
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
        Some(label) => format!("El temporizador para {label} ha terminado."),
        None => format!("El temporizador de {} ha terminado.", lasting(length)),
    },
};

fn result(tool: &str, output: &Value, said: &str) -> Option<String> {
    let reader = READER.as_ref()?;
    match tool {
        "get_time" => time(reader, output, said),
        "calculate" => sum(output),
        "convert_units" => conversion(reader, output),
        "set_timer" => Some(format!(
            "Vale, {} está en marcha.",
            timer(output, "el temporizador")?
        )),
        "list_timers" => timers(output),
        "cancel_timer" => cancelled(output),
        "get_weather" => weather(reader, output),
        _ => None,
    }
}

fn question(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    Some(match tool {
        "set_timer" => {
            let timer = timer(&Value::Object(arguments.clone()), "un temporizador")?;
            format!("¿Pongo {timer}?")
        }
        "cancel_timer" => "¿Cancelo el temporizador?".into(),
        _ => return None,
    })
}

/// "En Tokio son las 3 y 5 de la tarde."
fn time(reader: &Reader, output: &Value, said: &str) -> Option<String> {
    let field = |name: &str| output.get(name)?.as_str();
    let clock = || {
        let (hour, minute) = wording::clock(field("time")?)?;
        Some(hours(hour, minute))
    };
    let day = || day(reader, field("date")?, said);
    let what = if reader.asks_for_both(said) {
        format!("{} y {}", clock()?, day()?)
    } else if reader.asks_for_date(said) {
        day()?
    } else {
        clock()?
    };
    Some(match field("place") {
        Some(place) => format!("En {} {what}.", reader.place_here(place)),
        None => format!("{}.", capitalised(&what)),
    })
}

/// "es lunes, 2 de marzo de 2026", "mañana es martes, 3 de marzo de 2026"
fn day(reader: &Reader, today: &str, said: &str) -> Option<String> {
    Some(match reader.other_day(said) {
        None => format!("es {}", date(today, 0)?.join(", ")),
        Some(Day::Away(days, name)) => {
            let verb = if days < 0 { "fue" } else { "es" };
            let date = date(today, days)?.join(", ");
            format!("{} {verb} {date}", name.to_lowercase())
        }
        Some(Day::Weekday(day)) => {
            let [name, date] = date(today, wording::days_until(day, today)?)?;
            format!("el {name} es {date}")
        }
    })
}

/// "lunes" and "2 de marzo de 2026": a date so many days after `today`.
fn date(today: &str, days: i64) -> Option<[String; 2]> {
    let (day_of_week, month, day, year) = wording::date_after(today, days)?;
    let month = MONTHS.get(month)?;
    Some([
        (*DAYS.get(day_of_week)?).to_owned(),
        format!("{day} de {month} de {year}"),
    ])
}

/// "son las 3 y 5 de la tarde", "es la 1 de la madrugada".
fn hours(hour: u32, minute: u32) -> String {
    let part = match hour {
        0..6 => "de la madrugada",
        6..12 => "de la mañana",
        12..20 => "de la tarde",
        _ => "de la noche",
    };
    let begin = match (hour + 11) % 12 + 1 {
        1 => "es la 1".to_owned(),
        hour => format!("son las {hour}"),
    };
    let minutes = match minute {
        0 => String::new(),
        15 => " y cuarto".into(),
        30 => " y media".into(),
        minute => format!(" y {minute}"),
    };
    format!("{begin}{minutes} {part}")
}

/// "12 por 7 son 84."
fn sum(output: &Value) -> Option<String> {
    let signs = [
        ("% of", " por ciento de"),
        ("sqrt(", "la raíz de "),
        (")", ""),
        ("(", ""),
        ("*", "por"),
        ("/", "entre"),
        ("^", "elevado a"),
        ("+", "más"),
        (" - ", " menos "),
    ];
    let sum = Sum::of(output, &signs, "por 10 elevado a")?;
    let about = if sum.is_rounded { "unos " } else { "" };
    let words = capitalised(&sum.expression);
    Some(format!("{words} son {about}{}.", sum.result))
}

/// "5 millas son unos 8,05 kilómetros."
fn conversion(reader: &Reader, output: &Value) -> Option<String> {
    let side = |value: &str, unit: &str| {
        let number = wording::number(output.get(value)?.as_f64()?);
        let unit = reader.unit_here(output.get(unit)?.as_str()?, &number);
        Some(format!("{number} {unit}"))
    };
    let about = if output.get("approximate")?.as_bool()? {
        "aproximadamente "
    } else {
        ""
    };
    let (from, to) = (side("value", "from")?, side("result", "to")?);
    let verb = if from.starts_with("1 ") { "es" } else { "son" };
    Some(format!("{from} {verb} {about}{to}."))
}

fn lasting(length: Duration) -> String {
    let units = [
        ("hora", "horas"),
        ("minuto", "minutos"),
        ("segundo", "segundos"),
    ];
    wording::length(length, units, "y")
}

/// "el temporizador de 10 minutos para pasta"
fn timer(timer: &Value, noun: &str) -> Option<String> {
    let length = lasting(wording::seconds(timer, "seconds")?);
    Some(match timer.get("label").and_then(Value::as_str) {
        Some(label) => format!("{noun} de {length} para {label}"),
        None => format!("{noun} de {length}"),
    })
}

fn timers(output: &Value) -> Option<String> {
    let one = |each: &Value| {
        let left = lasting(wording::seconds(each, "remaining_seconds")?);
        Some(format!("{}, le quedan {left}", timer(each, "uno")?))
    };
    let timers = output.get("timers")?.as_array()?;
    let each: Vec<String> = timers.iter().map(one).collect::<Option<_>>()?;
    Some(match each.as_slice() {
        [] => WORDING.no_timer.into(),
        [one] => format!("Hay {}.", one.replacen("uno", "un temporizador", 1)),
        several => format!(
            "Hay {} temporizadores: {}.",
            several.len(),
            several.join("; ")
        ),
    })
}

fn cancelled(output: &Value) -> Option<String> {
    let timers = output.get("cancelled")?.as_array()?;
    Some(match timers.as_slice() {
        [one] => format!("Vale, {} está cancelado.", timer(one, "el temporizador")?),
        several => format!("Vale, {} temporizadores están cancelados.", several.len()),
    })
}

/// "En Madrid hay 12 grados, nublado."
fn weather(reader: &Reader, output: &Value) -> Option<String> {
    let field = |name: &str| output.get(name)?.as_str();
    let number = |name: &str| output.get(name)?.as_i64();
    let sky = match field("sky")? {
        "clear" => "cielo despejado",
        "mostly clear" => "cielo casi despejado",
        "partly cloudy" => "algo nublado",
        "cloudy" => "nublado",
        "foggy" => "con niebla",
        "drizzling" => "con llovizna",
        "freezing drizzle" => "con llovizna helada",
        "light rain" => "con lluvia ligera",
        "rainy" => "con lluvia",
        "heavy rain" => "con lluvia intensa",
        "freezing rain" => "con lluvia helada",
        "light snow" => "con nieve ligera",
        "snowy" => "con nieve",
        "heavy snow" => "con nieve intensa",
        "showers" => "con chubascos",
        "heavy showers" => "con chubascos fuertes",
        "snow showers" => "con chubascos de nieve",
        "thunderstorms" => "con tormentas",
        "thunderstorms with hail" => "con tormentas y granizo",
        _ => return None,
    };
    let place = reader.place_here(field("place")?);
    let day = match field("day")? {
        "now" => {
            return Some(format!(
                "En {place} hay {} grados, {sky}.",
                number("temperature")?
            ));
        }
        "today" => "hoy",
        _ => "mañana",
    };
    let (low, high) = (number("low")?, number("high")?);
    let rain = number("rain_chance").filter(|chance| *chance >= 30);
    let rain = rain.map_or_else(String::new, |chance| {
        format!(", con un {chance} por ciento de probabilidad de lluvia")
    });
    Some(format!(
        "En {place} habrá {day} de {low} a {high} grados, {sky}{rain}."
    ))
}
